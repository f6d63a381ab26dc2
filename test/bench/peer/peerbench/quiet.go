package main

import (
	"os"
	"strconv"
	"strings"
	"time"

	"tranche.dev/test/bench/peer/family"
)

// Above this share of the CPUs in the hands of other programs a step counts as disturbed.
const mostForeign = 0.12

// ticks of /proc, of which a second has 100 on every Linux we know.
const ticksPerSecond = 100

// A clocks says what the CPUs did until now.
type clocks struct{ total, busy, own float64 } // ticks; own: the API server and the driver

func machineClocks() (total, busy float64) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line)[1:] {
		ticks, _ := strconv.ParseFloat(field, 64)
		if i > 7 { // guests are in user already
			break
		}
		total += ticks
		if i != 3 && i != 4 { // idle, iowait
			busy += ticks
		}
	}
	return total, busy
}

func (b *bench) clocks() clocks {
	var c clocks
	c.total, c.busy = machineClocks()
	for _, pid := range b.servers {
		c.own += family.Ticks(pid)
	}
	if b.kept != 0 {
		c.own += family.Ticks(b.kept)
	}
	return c
}

// foreignShare is what other programs used of the CPUs since before; self is the load tool's and its ended children's time.
func (c clocks) foreignShare(before clocks, self time.Duration) float64 {
	if c.total <= before.total {
		return 0
	}
	own := c.own - before.own + self.Seconds()*ticksPerSecond
	return max(0, c.busy-before.busy-own) / (c.total - before.total)
}

// waitForQuiet returns when the CPUs were nine tenths idle for a moment, or patience ends.
func waitForQuiet(patience time.Duration) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		total, busy := machineClocks()
		time.Sleep(250 * time.Millisecond)
		totalAfter, busyAfter := machineClocks()
		if busyAfter-busy <= 0.1*(totalAfter-total) {
			return
		}
	}
}
