package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A line is one figure of both. Ratio is ours over the peer's: lower is better.
type line struct {
	Name  string     `json:"name"`
	Unit  string     `json:"unit"`
	Ours  float64    `json:"ours"`
	Peer  float64    `json:"peer"`
	Ratio float64    `json:"ratio"`
	Range [4]float64 `json:"range"` // of the rounds: ours least and most, the peer's least and most
	Bound string     `json:"bound,omitempty"`
	OK    *bool      `json:"ok,omitempty"`
}

// Bounds by figure: of the ratio, or of our own value.
var ratioBounds = map[string]float64{
	"prepare_p50_1": 0.5, "prepare_p50_8": 0.35, "prepare_p50_64": 0.3, "prepare_p99_64": 0.6, "prepare_p50_64_lean": 0.6,
	"cpu_per_claim_1": 0.2, "cpu_per_claim_8": 0.2, "cpu_per_claim_64": 0.2,
	"rss_8_devices": 0.7, "rss_300_devices": 0.65, "rss_1000_devices": 0.65, "rss_after_load": 0.7, "publish_lag_300": 1.0,
	"pss_host_and_runner": 0.9,
}
var valueBounds = map[string]float64{"start_to_published_300": 250, "start_to_published_1000": 500, "restart_500_claims": 50, "restart_growth": 5, "runner_private_memory": 6}

func unitOf(name string) string {
	switch {
	case strings.HasPrefix(name, "rss_"), strings.HasPrefix(name, "pss_"), strings.HasPrefix(name, "anonymous_"):
		return "MiB"
	case name == "runner_private_memory":
		return "MiB"
	case strings.HasSuffix(name, "_us"):
		return "us"
	case strings.HasPrefix(name, "slices_"):
		return "slices"
	case name == "idle_cpu":
		return "ms/min"
	}
	return "ms"
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func makeLine(name string, ours, peer []float64) line {
	l := line{Name: name, Unit: unitOf(name), Ours: median(ours), Peer: median(peer), Range: [4]float64{slices.Min(ours), slices.Max(ours), slices.Min(peer), slices.Max(peer)}}
	if l.Peer != 0 {
		l.Ratio = l.Ours / l.Peer
	}
	judge := func(value, bound float64, text string) {
		ok := value <= bound
		l.Bound, l.OK = text, &ok
	}
	if bound, has := ratioBounds[name]; has {
		judge(l.Ratio, bound, fmt.Sprintf("x%g", bound))
	} else if bound, has := valueBounds[name]; has {
		judge(l.Ours, bound, fmt.Sprintf("%g %s", bound, l.Unit))
	}
	for _, value := range []*float64{&l.Ours, &l.Peer, &l.Ratio, &l.Range[0], &l.Range[1], &l.Range[2], &l.Range[3]} {
		*value = math.Round(*value*1000) / 1000
	}
	return l
}

// report has every figure of ours and the peer, then those of the load against the peer's lean form.
func (b *bench) report() []line {
	ours := b.samples["ours"]
	grow := func(driver string) {
		empty, held := b.samples[driver]["restart_0_claims"], b.samples[driver]["restart_500_claims"]
		for i := range held {
			b.add(driver, "restart_growth", held[i]-empty[i])
		}
	}
	grow("ours")
	grow("peer")
	var lines []line
	for _, peer := range []struct{ driver, suffix string }{{"peer", ""}, {"lean", "_lean"}} {
		var names []string
		for name := range b.samples[peer.driver] {
			if len(ours[name]) > 0 { // not where isolation is measured alone
				names = append(names, name)
			}
		}
		slices.SortFunc(names, compareNames)
		for _, name := range names {
			lines = append(lines, makeLine(name+peer.suffix, ours[name], b.samples[peer.driver][name]))
		}
	}
	return append(lines, b.isolationLines()...)
}

// isolationLines say what a process of its own costs a backend: added to the host with the backend in its own process, round by round, beside the
// peer's whole figure; and what host and runner take together. All other figures of ours are those of one process.
func (b *bench) isolationLines() (lines []line) {
	isolated, single, peer := b.samples["isolated"], b.samples["single"], b.samples["peer"]
	added := func(name, figure string, factor float64) {
		var more, whole []float64
		for i := range min(len(isolated[figure]), len(single[figure]), len(peer[figure])) {
			more = append(more, factor*(isolated[figure][i]-single[figure][i]))
			whole = append(whole, factor*peer[figure][i])
		}
		if len(more) > 0 {
			lines = append(lines, makeLine(name, more, whole))
		}
	}
	against := func(name, figure string) {
		if len(isolated[figure]) > 0 && len(peer[figure]) > 0 {
			lines = append(lines, makeLine(name, isolated[figure], peer[figure]))
		}
	}
	const usPerMs = 1000
	added("isolation_prepare_p50_added_us", "prepare_p50_1", usPerMs)
	added("isolation_prepare_p99_added_us", "prepare_p99_1", usPerMs)
	added("isolation_start_added_ms", "start_to_registered_300", 1)
	against("prepare_p50_1_isolated", "prepare_p50_1")
	against("prepare_p99_1_isolated", "prepare_p99_1")
	against("pss_host_and_runner", "pss_300_devices")
	against("pss_host_and_runner_8_devices", "pss_8_devices")
	if private := isolated["children_private_300_devices"]; len(private) > 0 {
		lines = append(lines, makeLine("runner_private_memory", private, []float64{0}))
	}
	return lines
}

// By text, numbers in it by value.
func compareNames(a, b string) int {
	left, right := strings.Split(a, "_"), strings.Split(b, "_")
	for i := range min(len(left), len(right)) {
		if left[i] == right[i] {
			continue
		}
		if len(left[i]) != len(right[i]) && strings.Trim(left[i]+right[i], "0123456789") == "" {
			return len(left[i]) - len(right[i])
		}
		return strings.Compare(left[i], right[i])
	}
	return len(left) - len(right)
}

func writeReport(path string, lines []line, all samples) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	var text strings.Builder
	for i, l := range lines {
		encoded, err := json.Marshal(l)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s", map[bool]string{true: "[\n", false: ",\n"}[i == 0], encoded)
	}
	if err := os.WriteFile(path, []byte(text.String()+"\n]\n"), 0o644); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(strings.TrimSuffix(path, ".json")+"-rounds.json", raw, 0o644)
}

func table(lines []line) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%-32s %-7s %10s %19s %10s %19s %7s  %-9s\n", "figure", "unit", "ours", "(min-max)", "peer", "(min-max)", "ratio", "bound")
	for _, l := range lines {
		verdict := ""
		if l.OK != nil {
			verdict = map[bool]string{true: "ok", false: "MISSED"}[*l.OK]
		}
		fmt.Fprintf(&text, "%-32s %-7s %10.2f %19s %10.2f %19s %7.3f  %-9s %s\n", l.Name, l.Unit, l.Ours, fmt.Sprintf("(%.2f-%.2f)", l.Range[0], l.Range[1]),
			l.Peer, fmt.Sprintf("(%.2f-%.2f)", l.Range[2], l.Range[3]), l.Ratio, l.Bound, verdict)
	}
	return text.String()
}
