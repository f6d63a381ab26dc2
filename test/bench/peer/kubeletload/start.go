package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	regpb "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func dial(path string) *grpc.ClientConn {
	return must(grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials())))
}

// waitDevices watches the driver's slices and sends the time at which ok first
// accepts the number of distinct devices in them.
func waitDevices(ctx context.Context, ok func(count int) bool) <-chan time.Time {
	api := client.ResourceV1().ResourceSlices()
	list := must(api.List(ctx, ofDriver()))
	opts := ofDriver()
	opts.ResourceVersion = list.ResourceVersion
	events := must(api.Watch(ctx, opts))
	have := map[string][]resourceapi.Device{}
	for _, s := range list.Items {
		have[s.Name] = s.Spec.Devices
	}
	accepted := func() bool {
		names := map[string]bool{}
		for _, devices := range have {
			for _, d := range devices {
				names[d.Name] = true
			}
		}
		return ok(len(names))
	}
	done := make(chan time.Time, 1)
	go func() {
		defer events.Stop()
		for !accepted() {
			event := <-events.ResultChan()
			slice, isSlice := event.Object.(*resourceapi.ResourceSlice)
			if !isSlice {
				log.Fatal("kubeletload: the ResourceSlices did not change in time, or their watch ended")
			}
			if have[slice.Name] = slice.Spec.Devices; event.Type == watch.Deleted {
				delete(have, slice.Name)
			}
		}
		done <- time.Now()
	}()
	return done
}

// register does what the kubelet does with a registration socket.
func register(ctx context.Context, path string) *regpb.PluginInfo {
	conn := dial(path)
	defer conn.Close()
	registration := regpb.NewRegistrationClient(conn)
	info := must(registration.GetInfo(ctx, &regpb.InfoRequest{}))
	must(registration.NotifyRegistrationStatus(ctx, &regpb.RegistrationStatus{PluginRegistered: true}))
	return info
}

func waitSocket(ctx context.Context, path string) {
	for {
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			return
		}
		check(ctx.Err())
		time.Sleep(500 * time.Microsecond)
	}
}

func runStart(ctx context.Context, r record, last bool) {
	if *fresh {
		check(client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, ofDriver()))
	}
	published := waitDevices(ctx, func(count int) bool { return count == *devices })
	out := must(os.OpenFile(*logTo, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644))
	defer out.Close()
	cmd := exec.Command(flag.Arg(0), flag.Args()[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	start := time.Now()
	check(cmd.Start())
	exited, stopping := make(chan bool), atomic.Bool{}
	go func() {
		if err := cmd.Wait(); !stopping.Load() {
			log.Fatalf("kubeletload: the driver ended: %v", err)
		}
		close(exited)
	}()
	waitSocket(ctx, *reg)
	r.millis("socket_ms", time.Since(start))
	info := register(ctx, *reg)
	r.millis("registered_ms", time.Since(start))
	conn := dial(info.Endpoint)
	defer conn.Close()
	must(drapb.NewDRAPluginClient(conn).NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{}))
	r.millis("ready_ms", time.Since(start)) // the DRA service answered
	r.millis("published_ms", (<-published).Sub(start))
	r["cpu_until_published_s"] = cpuSeconds(cmd.Process.Pid)
	r["versions"] = info.SupportedVersions
	time.Sleep(*settle)
	r.process(cmd.Process.Pid)
	if *keep && last {
		r["kept_pid"] = strconv.Itoa(cmd.Process.Pid)
		return
	}
	stopping.Store(true)
	stop := time.Now()
	check(cmd.Process.Signal(syscall.SIGTERM))
	<-exited
	r.millis("stop_ms", time.Since(stop))
}
