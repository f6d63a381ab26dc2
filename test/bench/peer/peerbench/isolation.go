package main

import (
	"fmt"
	"strconv"
)

const (
	isolationStarts = 5 // of each kind a round
	isolationClaims = 400
)

// measureIsolation says what a process for the backend costs: in memory against the Go driver, in time against the same host that loads the
// backend itself.
func (b *bench) measureIsolation(isolated *driver) {
	for _, devices := range []int{8, loadDevices} {
		figure := "pss_host_and_runner"
		if devices != loadDevices {
			figure = fmt.Sprintf("pss_host_and_runner_%d_devices", devices)
		}
		for _, side := range []struct {
			samples string
			driver  *driver
		}{{"isolation", isolated}, {"isolation-peer", b.peer("peer")}} {
			r := b.start(side.driver, devices, true, "3s")
			b.add(side.samples, figure, r.number("pss_kib")/kibPerMiB)
			if side.driver == isolated && devices == loadDevices {
				if r.number("children") != 1 {
					check(fmt.Errorf("the host has %g runners, not 1", r.number("children")))
				}
				b.add("isolation", "runner_private_memory", r.number("child_private_kib")/kibPerMiB)
				after := b.load(isolated, "load", loadClaims, "-c", "64")
				b.add("isolation", "runner_private_memory_after_load", after.number("child_private_kib")/kibPerMiB)
			}
			b.stop()
		}
	}
	b.measureIsolatedStart(isolated)
	b.measureIsolatedPrepare()
}

// In turn, so that both see the same machine.
func (b *bench) measureIsolatedStart(isolated *driver) {
	registered, published := map[string][]float64{}, map[string][]float64{}
	for range isolationStarts {
		for _, d := range []*driver{b.ours(), isolated} {
			r := b.start(d, loadDevices, true, "100ms")
			registered[d.name] = append(registered[d.name], r.number("registered_ms"))
			published[d.name] = append(published[d.name], r.number("published_ms"))
			b.stop()
		}
	}
	b.add("isolation", "isolation_registered_added_ms", median(registered["isolated"])-median(registered["ours"]))
	b.add("isolation", "isolation_start_added_ms", median(published["isolated"])-median(published["ours"]))
}

// One host with both, a claim of each in turn.
func (b *bench) measureIsolatedPrepare() {
	d := b.both()
	b.start(d, heldClaims, true, "1s")
	defer b.stop()
	compare := func(count int) record {
		arguments := []string{"compare", "-reallocate", "-n", strconv.Itoa(count), "-set", d.set + "-held", "-socket", d.socket(),
			"-with-set", d.set + "-second", "-with", d.socketOf(secondDriver),
			"-device-format", d.deviceFormat, "-node", nodeName, "-devices", strconv.Itoa(mostDevices)}
		return b.kubeletload(true, arguments...)
	}
	compare(20) // connections and caches are warm on a node that works
	r := compare(isolationClaims)
	for _, percentile := range []string{"p50", "p99"} {
		added := r.number("with_prepare_"+percentile+"_ms") - r.number("prepare_"+percentile+"_ms")
		b.add("isolation", "isolation_prepare_"+percentile+"_added_us", added*1000)
	}
}
