package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"tranche.dev/test/bench/peer/family"
)

// A record holds the results of one run.
type record map[string]any

func (r record) print() {
	fmt.Println(string(must(json.Marshal(r))))
}

func (r record) millis(key string, d time.Duration) {
	r[key] = float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// latencies records percentiles (nearest rank) and the throughput of a phase.
func (r record) latencies(phase string, lat []time.Duration, wall time.Duration) {
	s := slices.Sorted(slices.Values(lat))
	for _, percent := range []int{50, 90, 99} {
		r.millis(fmt.Sprintf("%s_p%d_ms", phase, percent), s[(percent*len(s)+99)/100-1])
	}
	r.millis(phase+"_max_ms", s[len(s)-1])
	r[phase+"_per_s"] = float64(len(s)) / wall.Seconds()
}

// process records what a process and its children hold together, and what is each child's alone.
func (r record) process(pid int) {
	members := family.Of(pid)
	number := func(pid int, file, field string) int {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if m := regexp.MustCompile(`(?m)^` + field + `:\s+(\d+)`).FindSubmatch(text); m != nil {
			v, _ := strconv.Atoi(string(m[1]))
			return v
		}
		return -1
	}
	sum := func(file, field string) (all int) {
		for _, member := range members {
			all += number(member, file, field)
		}
		return all
	}
	r["rss_kib"] = sum("smaps_rollup", "Rss")
	r["pss_kib"] = sum("smaps_rollup", "Pss")
	r["anonymous_kib"] = sum("smaps_rollup", "Anonymous")
	r["peak_rss_kib"] = sum("status", "VmHWM")
	r["threads"] = sum("status", "Threads")
	fds := 0
	for _, member := range members {
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", member))
		fds += len(entries)
	}
	r["fds"] = fds
	r["cpu_total_s"] = cpuSeconds(pid)
	children := members[1:]
	r["children"] = len(children)
	most := 0
	for _, child := range children {
		most = max(most, number(child, "smaps_rollup", "Private_Clean")+number(child, "smaps_rollup", "Private_Dirty"))
	}
	r["child_private_kib"] = most
}

// cpuSeconds reads the CPU clocks of a process and its children, ended threads included.
func cpuSeconds(pid int) (seconds float64) {
	for _, member := range family.Of(pid) {
		var ts unix.Timespec
		if err := unix.ClockGettime(int32(^member<<3|2), &ts); err != nil { // as clock_getcpuclockid(3) does
			return -1
		}
		seconds += float64(ts.Nano()) / 1e9
	}
	return seconds
}

// summary reduces runs to "median (min-max)" of every number.
func summary(all []record) record {
	out := record{"summary_of_runs": len(all)}
	for key := range all[0] {
		var xs []float64
		for _, r := range all {
			switch v := r[key].(type) {
			case float64:
				xs = append(xs, v)
			case int:
				xs = append(xs, float64(v))
			}
		}
		if len(xs) == len(all) {
			slices.Sort(xs)
			out[key] = fmt.Sprintf("%.5g (%.5g-%.5g)", (xs[(len(xs)-1)/2]+xs[len(xs)/2])/2, xs[0], xs[len(xs)-1])
		}
	}
	return out
}

// parallel calls f(0) to f(count-1) from some workers and returns the wall time.
func parallel(count, workers int, f func(i int)) time.Duration {
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}
