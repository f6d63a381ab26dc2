package harness

import (
	"os"
	"path/filepath"
)

// Capture writes what the node knows about the test's objects beside the node's logs and says where.
func (c *Cluster) Capture() {
	dir := filepath.Join(outDir, "failed", dnsLabel(c.T.Name()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		c.T.Logf("nothing captured: %v", err)
		return
	}
	for file, args := range map[string][]string{
		"pods.yaml":   {"get", "pods", "-o", "yaml"},
		"claims.yaml": {"get", "resourceclaims", "-o", "yaml"},
		"slices.yaml": {"get", "resourceslices,deviceclasses", "-o", "yaml"},
		"events.txt":  {"get", "events", "-A", "--sort-by=.lastTimestamp"},
		"node.txt":    {"describe", "node", Node},
	} {
		out, _ := c.TryKubectl("", args...)
		_ = os.WriteFile(filepath.Join(dir, file), []byte(out), 0o644)
	}
	for file, command := range map[string][]string{
		"network.txt":   {"sh", "-c", "ip -d addr; for d in $(ls /sys/class/net); do tc -s qdisc show dev $d; tc -s class show dev $d; done; ip -n peer addr"},
		"processes.txt": {"ps", "-eo", "pid,ppid,stat,rss,etime,args"},
		"kubelet.txt":   {"tail", "-n", "400", filepath.Join(outDir, "logs", "kubelet.log")},
		"files.txt":     {"sh", "-c", "ls -laR /var/lib/kubelet/plugins /var/lib/kubelet/plugins_registry /var/run/cdi"},
	} {
		out, _ := c.TryRun(command...)
		_ = os.WriteFile(filepath.Join(dir, file), []byte(out), 0o644)
	}
	c.T.Logf("captured: failed/%s beside the node's logs", dnsLabel(c.T.Name()))
}
