package harness

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
)

// Limits are what the kernel has of a share: bits per second and the bytes (frames with their Ethernet header) that passed.
type Limits struct {
	Rate, Ceil, Receive      int64
	SentBytes, ReceivedBytes uint64
	At                       time.Time
}

// ReadLimits asks the kernel. What is missing is an error that names it.
func ReadLimits(share Share) (Limits, error) {
	uplink, err := netlink.LinkByName(share.Uplink)
	if err != nil {
		return Limits{}, fmt.Errorf("uplink %s: %w", share.Uplink, err)
	}
	host, err := netlink.LinkByName(share.HostEnd)
	if err != nil {
		return Limits{}, fmt.Errorf("host end %s %w: %v", share.HostEnd, ErrGone, err)
	}
	before := time.Now()
	classes, err := netlink.ClassList(uplink, 0)
	if err != nil {
		return Limits{}, fmt.Errorf("classes of %s: %w", share.Uplink, err)
	}
	qdiscs, err := netlink.QdiscList(host)
	if err != nil {
		return Limits{}, fmt.Errorf("qdiscs of %s: %w", share.HostEnd, err)
	}
	limits := Limits{At: before.Add(time.Since(before) / 2)}
	for _, class := range classes {
		htb, ok := class.(*netlink.HtbClass)
		if !ok || netlink.HandleStr(htb.Handle) != share.ClassID {
			continue
		}
		limits.Rate, limits.Ceil = int64(htb.Rate)*8, int64(htb.Ceil)*8
		if s := htb.Statistics; s != nil && s.Basic != nil {
			limits.SentBytes = s.Basic.Bytes
		}
	}
	for _, qdisc := range qdiscs {
		tbf, ok := qdisc.(*netlink.Tbf)
		if !ok || tbf.Parent != netlink.HANDLE_ROOT {
			continue
		}
		limits.Receive = int64(tbf.Rate) * 8
		if s := tbf.Statistics; s != nil && s.Basic != nil {
			limits.ReceivedBytes = s.Basic.Bytes
		}
	}
	if limits.Rate == 0 {
		return limits, fmt.Errorf("class %s on %s %w", share.ClassID, share.Uplink, ErrGone)
	}
	if limits.Receive == 0 {
		return limits, fmt.Errorf("the tbf on %s %w", share.HostEnd, ErrGone)
	}
	return limits, nil
}

// ErrGone is wrapped by what ReadLimits says of a share that is not in the kernel: nothing can pass there.
var ErrGone = errors.New("is gone")

// WatchLimits reads the shares' limits in the kernel twenty times a second until stop is called, which fails the test where one was not as granted or gone.
func (c *Cluster) WatchLimits(shares ...Share) (stop func()) {
	return c.watchLimits(false, shares)
}

// WatchCaps is WatchLimits for shares that may vanish and come back.
func (c *Cluster) WatchCaps(shares ...Share) (stop func()) {
	return c.watchLimits(true, shares)
}

func (c *Cluster) watchLimits(mayVanish bool, shares []Share) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	seen := map[string]int{}
	reads := 0
	go func() {
		defer close(done)
		for {
			for _, share := range shares {
				limits, err := ReadLimits(share)
				if mayVanish && errors.Is(err, ErrGone) {
					continue
				}
				if err != nil {
					seen[err.Error()]++
				} else if limits.Rate != share.Requested || limits.Ceil != share.Requested || limits.Receive != share.Requested {
					seen[fmt.Sprintf("%s: rate %d ceil %d receive %d instead of %d", share.HostEnd, limits.Rate, limits.Ceil, limits.Receive, share.Requested)]++
				}
			}
			reads++
			select {
			case <-end:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return sync.OnceFunc(func() {
		c.T.Helper()
		close(end)
		<-done
		c.T.Logf("limits of %d shares read %d times", len(shares), reads)
		for what, times := range seen {
			c.T.Errorf("limit not in force, %d of %d times: %s", times, reads, what)
		}
	})
}

// Flow is traffic of a pod through a share.
type Flow struct {
	Pod, Peer string
	Share     Share
	Direction Direction
}

// Carry runs the flows at the same time and returns, for each, what passed its limit in bits per second of frames, by the kernel's counters over about
// `window` in the middle of the traffic.
func (c *Cluster) Carry(window time.Duration, flows ...Flow) []float64 {
	c.T.Helper()
	var traffic sync.WaitGroup
	failures := make([]error, len(flows))
	for i, flow := range flows {
		port := fmt.Sprint(5201 + int(nextPort.Add(1)))
		server := c.Start("iperf3-"+port, "ip", "netns", "exec", PeerNamespace, "iperf3", "--server", "--forceflush", "--one-off", "--bind", flow.Peer, "--port", port)
		defer server.Stop()
		c.Wait("iperf3 listens", 20*time.Second, func() (bool, string) { return strings.Contains(server.Log(), "Server listening"), server.Log() })
		command := []string{"exec", flow.Pod, "--", "iperf3", "--client", flow.Peer, "--port", port, "--time", fmt.Sprintf("%.0f", window.Seconds()+3)}
		if flow.Direction == FromPeer {
			command = append(command, "--reverse")
		}
		traffic.Add(1)
		go func() {
			defer traffic.Done()
			if out, err := c.TryKubectl("", command...); err != nil {
				failures[i] = fmt.Errorf("iperf3 from pod %s to %s: %w\n%s", flow.Pod, flow.Peer, err, out)
			}
		}()
	}
	read := func() []Limits {
		all := make([]Limits, len(flows))
		for i, flow := range flows {
			var err error
			if all[i], err = ReadLimits(flow.Share); err != nil {
				c.T.Error(err)
			}
		}
		return all
	}
	passed := func(limits Limits, flow Flow) uint64 {
		if flow.Direction == FromPeer {
			return limits.ReceivedBytes
		}
		return limits.SentBytes
	}
	idle := read()
	c.Wait("every flow carries", 30*time.Second, func() (bool, string) {
		now := read()
		for i, flow := range flows {
			if passed(now[i], flow)-passed(idle[i], flow) < 1_000_000 {
				return false, fmt.Sprintf("pod %s has moved %d bytes; %v", flow.Pod, passed(now[i], flow)-passed(idle[i], flow), failures[i])
			}
		}
		return true, ""
	})
	time.Sleep(time.Second) // slow start is over
	from := read()
	time.Sleep(window)
	to := read()
	traffic.Wait()
	rates := make([]float64, len(flows))
	for i, flow := range flows {
		if failures[i] != nil {
			c.T.Fatal(failures[i])
		}
		rates[i] = float64(passed(to[i], flow)-passed(from[i], flow)) * 8 / to[i].At.Sub(from[i].At).Seconds()
	}
	return rates
}
