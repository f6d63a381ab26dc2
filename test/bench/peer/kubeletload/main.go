// Kubeletload plays the kubelet against a DRA node driver and measures it.
//
// It works with any driver that listens at a DRA service socket and a plugin
// registration socket, in whatever language it is written. Each run prints one
// JSON object; with -runs above 1 a last object gives "median (min-max)" of
// every number.
//
//	kubeletload claims   create (or -delete) allocated, reserved ResourceClaims and the node
//	kubeletload start    start a driver: time to registered, ready, published; memory
//	kubeletload load     prepare and unprepare claims (or, as a floor, GET them from
//	                     the API server): latency, throughput, CPU of the driver
//	kubeletload compare  the same with two sockets, one claim of each in turn: what the one takes more than the other
//	kubeletload stat     memory, threads, fds of a process; its CPU over -for
//	kubeletload slices   the driver's ResourceSlices: count, devices, bytes
//	kubeletload lag      change the driver's devices with -change-command; time until its slices show it
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	claimLabel  = "kubeletload" // on the claims; its value is that of -set
	requestName = "r0"
)

var (
	kubeconfig = flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig of the API server")
	driver     = flag.String("driver", "gpu.example.com", "DRA driver name; also the claims' device class")
	node       = flag.String("node", "node-a", "node name; also the pool name of the claims")
	namespace  = flag.String("namespace", "default", "namespace of the claims")
	set        = flag.String("set", "load", "name of the set of claims; also their name prefix")
	n          = flag.Int("n", 200, "claims (claims, load, compare) or changes (lag)")
	perClaim   = flag.Int("per-claim", 1, "devices of a claim")
	devices    = flag.Int("devices", 8, "claims: devices to allocate in turn; start: devices to wait for")
	devFormat  = flag.String("device-format", "gpu-%d", "claims: device name")
	del        = flag.Bool("delete", false, "claims: delete the set instead")

	socket     = flag.String("socket", "", "load: DRA service socket")
	pid        = flag.Int("pid", 0, "load, stat, lag: process of the driver; its children count as the driver")
	conc       = flag.Int("c", 1, "load: calls in flight")
	batch      = flag.Int("batch", 1, "load: claims a call")
	pattern    = flag.String("pattern", "phased", "load: phased (prepare all, then unprepare all), paired (each claim at once), prepare, unprepare, get")
	reallocate = flag.Bool("reallocate", false, "load, compare: allocate the claims before, and take the allocation away once they are unprepared, as the cluster does")
	rest       = flag.Duration("rest", 0, "load: wait after each phase before the driver's CPU is read, so that what it does later counts too")
	withSocket = flag.String("with", "", "compare: DRA service socket of the other")
	withSet    = flag.String("with-set", "", "compare: the set of claims of the other")
	synth      = flag.Bool("synthetic", false, "load: invented claims, answers unchecked (for an echo server)")

	reg    = flag.String("reg", "", "start: registration socket")
	fresh  = flag.Bool("fresh", false, "start: delete the driver's ResourceSlices first")
	settle = flag.Duration("settle", 5*time.Second, "start: wait before measuring memory")
	keep   = flag.Bool("keep", false, "start: leave the driver of the last run running")
	logTo  = flag.String("log", os.DevNull, "start: file for the driver's output")

	over   = flag.Duration("for", 0, "stat: measure CPU over this time")
	change = flag.String("change-command", "", "lag: shell command that takes a device away or brings it back; DRIVER_PID is the driver's process")
	pause  = flag.Duration("pause", 500*time.Millisecond, "lag: wait before each change")
	runs   = flag.Int("runs", 1, "repeat the measurement")
	limit  = flag.Duration("timeout", 10*time.Minute, "limit for one run")
)

// check ends the program on an error: a failed step leaves nothing to measure.
func check(err error) {
	if err != nil {
		log.Fatalf("kubeletload: %v", err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// client is that of the API server; nil without -kubeconfig.
var client kubernetes.Interface

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("usage: kubeletload claims|start|load|compare|stat|slices|lag [flags] [-- driver command]")
	}
	check(flag.CommandLine.Parse(os.Args[2:]))
	command := map[string]func(context.Context, record, bool){
		"claims": runClaims, "start": runStart, "load": runLoad, "compare": runCompare, "stat": runStat, "slices": runSlices, "lag": runLag,
	}[os.Args[1]]
	if command == nil {
		log.Fatalf("no such command: %s", os.Args[1])
	}
	if *kubeconfig != "" {
		config := must(clientcmd.BuildConfigFromFlags("", *kubeconfig))
		config.QPS = -1 // no limit: -n and -c bound the load
		client = must(kubernetes.NewForConfig(config))
	}
	var all []record
	for i := range *runs {
		ctx, cancel := context.WithTimeout(context.Background(), *limit)
		r := record{"what": os.Args[1]}
		command(ctx, r, i == *runs-1)
		cancel()
		r.print()
		all = append(all, r)
	}
	if len(all) > 1 {
		summary(all).print()
	}
}

func ofDriver() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + *driver}
}

func ofSet(set string) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: claimLabel + "=" + set}
}
