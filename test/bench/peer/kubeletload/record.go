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

// procNumber reads "field: number" of a file of a process; -1 when there is none.
func procNumber(pid int, file, field string) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if m := regexp.MustCompile(`(?m)^` + field + `:\s+(\d+)`).FindSubmatch(text); m != nil {
		v, _ := strconv.Atoi(string(m[1]))
		return v
	}
	return -1
}

// children lists the processes that a process has started and not yet reaped.
func children(pid int) (found []int) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		if child, err := strconv.Atoi(entry.Name()); err == nil && procNumber(child, "status", "PPid") == pid {
			found = append(found, child)
		}
	}
	return found
}

// process records what a process holds, alone and with its children.
func (r record) process(pid int) {
	number := func(file, field string) int { return procNumber(pid, file, field) }
	r["rss_kib"] = number("smaps_rollup", "Rss")
	r["pss_kib"] = number("smaps_rollup", "Pss")
	r["anonymous_kib"] = number("smaps_rollup", "Anonymous")
	r["peak_rss_kib"] = number("status", "VmHWM")
	r["threads"] = number("status", "Threads")
	family, private := number("smaps_rollup", "Pss"), 0
	processes := children(pid)
	for _, child := range processes {
		family += procNumber(child, "smaps_rollup", "Pss")
		private += procNumber(child, "smaps_rollup", "Private_Clean") + procNumber(child, "smaps_rollup", "Private_Dirty")
	}
	r["family_pss_kib"], r["children"], r["children_private_kib"] = family, len(processes), private
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	r["fds"] = len(fds)
	r["cpu_total_s"] = cpuSeconds(pid)
}

// cpuSeconds reads the CPU clock of a process, ended threads included.
func cpuSeconds(pid int) float64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil { // as clock_getcpuclockid(3) does
		return -1
	}
	return float64(ts.Nano()) / 1e9
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
