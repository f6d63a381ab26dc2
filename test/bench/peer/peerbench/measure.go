package main

import (
	"fmt"
	"strconv"
)

const (
	kibPerMiB     = 1024
	idleSeconds   = 20
	loadDevices   = 300
	mostDevices   = 1000
	lagChanges    = "6"
	lagPause      = "600ms"
	restAfterLoad = "2600ms" // longer than our host leaves an allocation to go by itself before it looks
)

func (d *driver) claimArguments(set string, count int) []string {
	return []string{"-set", d.set + "-" + set, "-n", strconv.Itoa(count), "-device-format", d.deviceFormat, "-node", nodeName, "-devices", strconv.Itoa(mostDevices)}
}

// Both drivers have claims of their own: the names of their devices differ.
func (b *bench) createClaims() {
	for _, driver := range []*driver{b.ours(), b.peer("peer")} {
		create := func(set string, count int, more ...string) {
			b.kubeletload(false, append(append([]string{"claims"}, driver.claimArguments(set, count)...), more...)...)
		}
		create("load", loadClaims)
		create("held", heldClaims)
		create("multi", multiClaims, "-per-claim", strconv.Itoa(multiCount))
	}
	second := append([]string{"claims", "-driver", secondDriver}, b.both().claimArguments("second", heldClaims)...)
	b.kubeletload(false, second...)
}

func (b *bench) measure(d *driver) {
	part := func(name string, f func(*driver)) {
		if *only == "" || *only == name {
			f(d)
		}
	}
	if d.isFull {
		part("start", b.measureStarts)
	}
	part("load", b.measureLoad)
	if d.isFull {
		part("restart", b.measureRestarts)
	}
	if d.isIsolated {
		part("isolation", b.measureIsolation)
	}
}

func (b *bench) start(d *driver, devices int, fresh bool, settle string) record {
	if fresh {
		d.wipe()
	}
	arguments := []string{"start", "-keep", "-devices", strconv.Itoa(devices), "-settle", settle, "-reg", d.registration()}
	if fresh {
		arguments = append(arguments, "-fresh")
	}
	return b.kubeletload(false, append(append(arguments, "--"), d.command(devices)...)...)
}

func (b *bench) measureStarts(d *driver) {
	for _, devices := range []int{8, loadDevices, mostDevices} {
		r := b.start(d, devices, true, "3s")
		add := func(name string, value float64) { b.add(d.name, fmt.Sprintf(name, devices), value) }
		add("start_to_registered_%d", r.number("registered_ms"))
		add("start_to_published_%d", r.number("published_ms"))
		add("cpu_until_published_%d", r.number("cpu_until_published_s")*1000)
		add("rss_%d_devices", r.number("rss_kib")/kibPerMiB)
		add("pss_%d_devices", r.number("pss_kib")/kibPerMiB)
		add("anonymous_%d_devices", r.number("anonymous_kib")/kibPerMiB)
		add("slices_%d_devices", b.kubeletload(true, "slices").number("slices"))
		lag := b.kubeletload(true, "lag", "-n", lagChanges, "-pause", lagPause, "-pid", strconv.Itoa(b.kept), "-change-command", d.change)
		add("publish_lag_%d", lag.number("publish_p50_ms"))
		if devices == mostDevices {
			stat := b.kubeletload(true, "stat", "-for", strconv.Itoa(idleSeconds)+"s", "-pid", strconv.Itoa(b.kept))
			b.add(d.name, "idle_cpu", stat.number("cpu_ms")*60/idleSeconds)
		}
		b.stop()
	}
}

func (b *bench) load(d *driver, set string, count int, more ...string) record {
	arguments := append([]string{"load", "-reallocate", "-rest", restAfterLoad, "-pid", strconv.Itoa(b.kept), "-socket", d.socket()}, d.claimArguments(set, count)...)
	return b.kubeletload(true, append(arguments, more...)...)
}

func (b *bench) measureLoad(d *driver) {
	b.start(d, loadDevices, true, "1s")
	defer b.stop()
	b.load(d, "load", 20, "-c", "4") // connections and caches are warm on a node that works
	for _, concurrency := range []string{"1", "8", "64"} {
		r := b.load(d, "load", loadClaims, "-c", concurrency)
		for _, phase := range []string{"prepare", "unprepare"} {
			b.add(d.name, phase+"_p50_"+concurrency, r.number(phase+"_p50_ms"))
			b.add(d.name, phase+"_p99_"+concurrency, r.number(phase+"_p99_ms"))
		}
		b.add(d.name, "cpu_per_claim_"+concurrency, r.number("cpu_ms_per_claim"))
		if concurrency == "64" {
			b.add(d.name, "rss_after_load", r.number("rss_kib")/kibPerMiB)
		}
	}
	if !d.isFull {
		return
	}
	r := b.load(d, "load", loadClaims, "-batch", "8")
	b.add(d.name, "prepare_p50_8_claims_a_call", r.number("prepare_p50_ms"))
	b.add(d.name, "cpu_per_claim_8_claims_a_call", r.number("cpu_ms_per_claim"))
	r = b.load(d, "multi", multiClaims, "-per-claim", strconv.Itoa(multiCount))
	b.add(d.name, "prepare_p50_4_devices_a_claim", r.number("prepare_p50_ms"))
}

func (b *bench) measureRestarts(d *driver) {
	b.start(d, mostDevices, true, "1s")
	restart := func() record {
		b.stop()
		return b.start(d, mostDevices, false, "1s")
	}
	b.add(d.name, "restart_0_claims", restart().number("registered_ms"))
	held := func(pattern string) {
		b.kubeletload(false, append([]string{"load", "-pattern", pattern, "-reallocate", "-rest", "3s", "-c", "4", "-socket", d.socket()}, d.claimArguments("held", heldClaims)...)...)
	}
	held("prepare")
	r := restart()
	b.add(d.name, "restart_500_claims", r.number("registered_ms"))
	b.add(d.name, "rss_restarted_500_claims", r.number("rss_kib")/kibPerMiB)
	held("unprepare")
	b.stop()
}
