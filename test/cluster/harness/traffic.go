package harness

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Direction of traffic as the pod sees it.
type Direction string

const (
	ToPeer   Direction = "pod to peer"
	FromPeer Direction = "peer to pod"
)

// Traffic is one TCP measurement between a pod and a machine behind an uplink.
type Traffic struct {
	Pod       string
	Peer      string // address: 10.90.0.1 or 10.90.1.1
	Direction Direction
	Duration  time.Duration // left out: 5 s; the first second is left out of the figure
}

var nextPort atomic.Int32

// Measure returns the payload in bits per second that the receiving side took. Multiply by FrameOverhead to compare with what a qdisc counts.
func (c *Cluster) Measure(traffic Traffic) float64 {
	c.T.Helper()
	if traffic.Duration == 0 {
		traffic.Duration = 5 * time.Second
	}
	port := strconv.Itoa(5201 + int(nextPort.Add(1)))
	server := c.Start("iperf3-"+port, "ip", "netns", "exec", PeerNamespace, "iperf3", "--server", "--forceflush", "--one-off", "--bind", traffic.Peer, "--port", port)
	defer server.Stop()
	c.Wait("iperf3 listens", 10*time.Second, func() (bool, string) { return strings.Contains(server.Log(), "Server listening"), server.Log() })
	command := []string{"iperf3", "--client", traffic.Peer, "--port", port, "--time", fmt.Sprintf("%.0f", traffic.Duration.Seconds()), "--omit", "1", "--json"}
	if traffic.Direction == FromPeer {
		command = append(command, "--reverse")
	}
	out := c.Exec(traffic.Pod, command...)
	var report struct {
		Error string `json:"error"`
		End   struct {
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Error != "" {
		c.T.Fatalf("iperf3 from pod %s to %s: %v %s\n%s", traffic.Pod, traffic.Peer, err, report.Error, out)
	}
	return report.End.Received.BitsPerSecond
}

// FrameOverhead is how much more a full TCP segment is on the wire than its payload at an MTU of 1500, with timestamps: 1514 of 1448 bytes.
const FrameOverhead = 1514.0 / 1448.0
