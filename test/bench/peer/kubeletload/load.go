package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// listClaims gives the claims of the set, or invents them.
func listClaims(ctx context.Context, set string) (out []*drapb.Claim) {
	if *synth {
		for i := range *n {
			uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
			out = append(out, &drapb.Claim{Namespace: *namespace, Name: fmt.Sprintf("%s-%d", set, i), Uid: uid})
		}
		return out
	}
	list := must(client.ResourceV1().ResourceClaims(*namespace).List(ctx, ofSet(set)))
	if len(list.Items) < *n {
		log.Fatalf("kubeletload: the set %q has %d claims, not %d: create them first", set, len(list.Items), *n)
	}
	for _, c := range list.Items[:*n] {
		out = append(out, &drapb.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)})
	}
	return out
}

// A phase is one kind of call for every claim; its latencies are those of the calls.
type phase struct {
	name string
	call func(ctx context.Context, plugin drapb.DRAPluginClient, claims []*drapb.Claim)
}

func prepare(ctx context.Context, plugin drapb.DRAPluginClient, claims []*drapb.Claim) {
	resp := must(plugin.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: claims}))
	for _, claim := range claims {
		got := resp.Claims[claim.Uid]
		if !*synth && (got.GetError() != "" || len(got.GetDevices()) != *perClaim || len(got.Devices[0].CdiDeviceIds) == 0) {
			log.Fatalf("kubeletload: prepare of %s: bad answer: %v", claim.Name, got)
		}
	}
}

func unprepare(ctx context.Context, plugin drapb.DRAPluginClient, claims []*drapb.Claim) {
	resp := must(plugin.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: claims}))
	for _, claim := range claims {
		if got := resp.Claims[claim.Uid]; !*synth && (got == nil || got.Error != "") {
			log.Fatalf("kubeletload: unprepare of %s: bad answer: %v", claim.Name, got)
		}
	}
}

func get(ctx context.Context, _ drapb.DRAPluginClient, claims []*drapb.Claim) {
	for _, claim := range claims {
		must(client.ResourceV1().ResourceClaims(*namespace).Get(ctx, claim.Name, metav1.GetOptions{}))
	}
}

// runLoad uses one connection, as the kubelet does.
func runLoad(ctx context.Context, r record, _ bool) {
	preparing := phase{"prepare", prepare}
	unpreparing := phase{"unprepare", unprepare}
	steps := map[string][][]phase{
		"phased": {{preparing}, {unpreparing}}, "paired": {{preparing, unpreparing}},
		"prepare": {{preparing}}, "unprepare": {{unpreparing}}, "get": {{{"get", get}}},
	}[*pattern]
	if steps == nil {
		log.Fatalf("kubeletload: no such pattern: %s", *pattern)
	}
	if *reallocate {
		allocateSet(ctx, *set)
	}
	var plugin drapb.DRAPluginClient
	if *pattern != "get" {
		conn := dial(*socket)
		defer conn.Close()
		plugin = drapb.NewDRAPluginClient(conn)
		must(plugin.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{})) // connect before timing
	}
	claims := listClaims(ctx, *set)
	calls := slices.Collect(slices.Chunk(claims, *batch))
	var cpu float64
	for _, step := range steps {
		before := cpuSeconds(*pid)
		runStep(ctx, r, step, plugin, calls)
		if *reallocate && step[len(step)-1].name == "unprepare" {
			deallocateSet(ctx, *set)
		}
		time.Sleep(*rest)
		cpu += cpuSeconds(*pid) - before
	}
	r["claims"], r["concurrency"], r["batch"] = len(claims), *conc, *batch
	if *pid > 0 {
		r["cpu_ms_per_claim"] = cpu * 1000 / float64(len(claims))
		r.process(*pid)
	}
}

func runStep(ctx context.Context, r record, step []phase, plugin drapb.DRAPluginClient, calls [][]*drapb.Claim) {
	latencies := make([][]time.Duration, len(step))
	for i := range step {
		latencies[i] = make([]time.Duration, len(calls))
	}
	wall := parallel(len(calls), *conc, func(i int) {
		for p, phase := range step {
			start := time.Now()
			phase.call(ctx, plugin, calls[i])
			latencies[p][i] = time.Since(start)
		}
	})
	for p, phase := range step {
		r.latencies(phase.name, latencies[p], wall)
	}
}

func runStat(_ context.Context, r record, _ bool) {
	before := cpuSeconds(*pid)
	time.Sleep(*over)
	r["cpu_ms"] = (cpuSeconds(*pid) - before) * 1000
	r.process(*pid)
}

func runSlices(ctx context.Context, r record, _ bool) {
	list := must(client.ResourceV1().ResourceSlices().List(ctx, ofDriver()))
	var perSlice, asJSON, asProtobuf []int
	for _, s := range list.Items {
		perSlice = append(perSlice, len(s.Spec.Devices))
		asJSON = append(asJSON, len(must(json.Marshal(s))))
		asProtobuf = append(asProtobuf, s.Size())
	}
	r["slices"], r["devices_per_slice"], r["json_bytes"], r["protobuf_bytes"] = len(list.Items), perSlice, asJSON, asProtobuf
}

func runLag(ctx context.Context, r record, _ bool) {
	lags := make([]time.Duration, *n)
	wall := parallel(*n, 1, func(i int) {
		time.Sleep(*pause)
		before := -1
		changed := waitDevices(ctx, func(count int) bool {
			if before < 0 {
				before = count
			}
			return count != before
		})
		command := exec.Command("/bin/sh", "-c", *change)
		command.Env = append(os.Environ(), fmt.Sprintf("DRIVER_PID=%d", *pid))
		start := time.Now()
		if out, err := command.CombinedOutput(); err != nil {
			log.Fatalf("kubeletload: the change command failed: %v: %s", err, out)
		}
		lags[i] = (<-changed).Sub(start)
	})
	r.latencies("publish", lags, wall)
}
