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

// A line is one figure of both. Ratio is ours over the peer's: lower is better. Without a peer there is neither.
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
	"pss_host_and_runner": 0.9, "pss_host_and_runner_8_devices": 0.9,
}
var valueBounds = map[string]float64{"start_to_published_300": 250, "start_to_published_1000": 500, "restart_500_claims": 50, "restart_growth": 5,
	"runner_private_memory": 6, "runner_private_memory_after_load": 6}

func unitOf(name string) string {
	switch {
	case strings.HasPrefix(name, "rss_"), strings.HasPrefix(name, "pss_"), strings.HasPrefix(name, "anonymous_"), strings.HasPrefix(name, "runner_"):
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

// Of figures by round; peer is empty where there is only ours.
func makeLine(name string, ours, peer []float64) line {
	l := line{Name: name, Unit: unitOf(name), Ours: median(ours), Range: [4]float64{slices.Min(ours), slices.Max(ours)}}
	if len(peer) > 0 {
		l.Peer, l.Range[2], l.Range[3] = median(peer), slices.Min(peer), slices.Max(peer)
	}
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

// report has every figure of ours and the peer, then those of the load against the peer's lean form and of ours with isolation against the peer, then
// what isolation costs.
func (b *bench) report() []line {
	grow := func(driver string) {
		empty, held := b.samples[driver]["restart_0_claims"], b.samples[driver]["restart_500_claims"]
		for i := range held {
			b.add(driver, "restart_growth", held[i]-empty[i])
		}
	}
	grow("ours")
	grow("peer")
	var lines []line
	for _, pair := range []struct{ ours, peer, suffix string }{
		{"ours", "peer", ""}, {"ours", "lean", "_lean"}, {"isolated", "peer", "_isolated"}, {"isolation", "isolation-peer", ""},
	} {
		ours, peer := b.samples[pair.ours], b.samples[pair.peer]
		var names []string
		for name := range ours {
			if _, has := peer[name]; has || pair.ours == "isolation" {
				names = append(names, name)
			}
		}
		slices.SortFunc(names, compareNames)
		for _, name := range names {
			lines = append(lines, makeLine(name+pair.suffix, ours[name], peer[name]))
		}
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
		peer := fmt.Sprintf("%10s %19s %7s", "-", "", "-")
		if l.Peer != 0 {
			peer = fmt.Sprintf("%10.2f %19s %7.3f", l.Peer, fmt.Sprintf("(%.2f-%.2f)", l.Range[2], l.Range[3]), l.Ratio)
		}
		fmt.Fprintf(&text, "%-32s %-7s %10.2f %19s %s  %-9s %s\n", l.Name, l.Unit, l.Ours, fmt.Sprintf("(%.2f-%.2f)", l.Range[0], l.Range[1]), peer, l.Bound, verdict)
	}
	return text.String()
}
