package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// TrancheNamespace is where `tranchectl render` puts the host.
	TrancheNamespace = "tranche-system"
	trancheSelector  = "app.kubernetes.io/component=tranche-node"
	trancheSet       = "daemonset/tranche-node"
)

// Tranche is the host as `tranchectl render` installs it: a DaemonSet with its permissions, classes and policies.
type Tranche struct {
	c *Cluster
}

// TrancheImage is the image that tools/test made of the build tree; "" where there is none.
func TrancheImage() string { return os.Getenv("TRANCHE_IMAGE") }

// Tranche applies what `tranchectl render` prints for a configuration and waits until the host serves with it. It stays installed when the test ends:
// installing it is idempotent, so that tests share it, and RemoveTranche takes it away.
func (c *Cluster) Tranche(configuration string) *Tranche {
	c.T.Helper()
	if TrancheImage() == "" {
		c.T.Skip("TRANCHE_IMAGE names no image of the host: run `make test-cluster`")
	}
	t := &Tranche{c}
	t.Apply(c.Render(configuration))
	t.WaitReady()
	return t
}

// Render is what `tranchectl render` prints for a configuration.
func (c *Cluster) Render(configuration string, options ...string) string {
	c.T.Helper()
	file := filepath.Join(c.T.TempDir(), "host.yaml")
	if err := os.WriteFile(file, []byte(configuration), 0o644); err != nil {
		c.T.Fatal(err)
	}
	cmd := exec.Command(TrancheProgram("tranchectl"), append([]string{"render", "--config", file, "--image", TrancheImage()}, options...)...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		c.T.Fatalf("tranchectl render: %v\n%s", err, said.String())
	}
	return string(out)
}

// TrancheProgram is the path of tranched or tranchectl in the build tree.
func TrancheProgram(name string) string {
	return filepath.Join(os.Getenv("TRANCHE_BUILD"), "bin", name)
}

// Apply applies rendered objects, as docs/deploy.md says to.
func (t *Tranche) Apply(manifests string) {
	t.c.T.Helper()
	if out, err := t.c.TryKubectl(manifests, "-n", TrancheNamespace, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		t.c.T.Fatalf("kubectl apply of what is rendered: %v\n%s", err, out)
	}
}

// WaitReady waits until the newest host, and no older one, is ready.
func (t *Tranche) WaitReady() {
	t.c.T.Helper()
	out, err := t.c.TryKubectl("", "-n", TrancheNamespace, "rollout", "status", trancheSet, "--timeout=120s")
	if err != nil {
		pods, _ := t.c.TryKubectl("", "-n", TrancheNamespace, "get", "pods,events", "-o", "wide")
		logs, _ := t.c.TryKubectl("", "-n", TrancheNamespace, "logs", "-l", trancheSelector, "--all-containers", "--tail=50")
		t.c.T.Fatalf("the host is not ready: %v\n%s\n%s\n%s", err, out, pods, logs)
	}
	t.c.Wait("one host", 60*time.Second, func() (bool, string) {
		pods := t.Pods()
		return len(pods) == 1, fmt.Sprintf("%d hosts", len(pods))
	})
}

// Pods are the hosts, ending ones too.
func (t *Tranche) Pods() []corev1.Pod {
	t.c.T.Helper()
	list, err := t.c.Client.CoreV1().Pods(TrancheNamespace).List(context.Background(), metav1.ListOptions{LabelSelector: trancheSelector})
	if err != nil {
		t.c.T.Fatalf("pods of the host: %v", err)
	}
	return list.Items
}

// Ctl runs tranchectl in the only host and returns what it printed.
func (t *Tranche) Ctl(args ...string) string {
	t.c.T.Helper()
	out, err := t.TryCtl(args...)
	if err != nil {
		t.c.T.Fatalf("tranchectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// TryCtl is Ctl for commands that may fail.
func (t *Tranche) TryCtl(args ...string) (string, error) {
	return t.c.TryKubectl("", append([]string{"-n", TrancheNamespace, "exec", trancheSet, "-c", "tranched", "--", "tranchectl"}, args...)...)
}

// PID is the host's process inside the node.
func (t *Tranche) PID() int {
	t.c.T.Helper()
	pod := t.Pods()[0]
	for _, status := range pod.Status.ContainerStatuses {
		if pid := t.c.containerPID(status.ContainerID); pid != 0 {
			return pid
		}
	}
	t.c.T.Fatalf("the host has no container: %+v", pod.Status)
	return 0
}

// Log is what the host has logged since its container started.
func (t *Tranche) Log() string {
	out, _ := t.c.TryKubectl("", "-n", TrancheNamespace, "logs", trancheSet, "-c", "tranched", "--tail=-1")
	return out
}

// RemoveTranche takes everything away that Tranche installed, the state on the node too.
func (c *Cluster) RemoveTranche(configuration string) {
	if out, err := c.TryKubectl(c.Render(configuration), "-n", TrancheNamespace, "delete", "--ignore-not-found", "--wait=true", "--timeout=90s", "-f", "-"); err != nil {
		c.T.Errorf("the host's objects do not go: %v\n%s", err, out)
	}
	for _, dir := range []string{"/var/lib/tranche", "/run/tranche"} {
		_, _ = c.TryRun("sh", "-c", "rm -rf "+dir+"/*")
	}
}

// Share is what a claim's status says of a device.
type Share struct {
	Device, ShareID, HostEnd, ClassID, Uplink string
	Requested, InForce                        int64 // bits per second, the first limit's
	Interface, Address, MAC                   string
	Conditions                                map[string]metav1.Condition
}

// SharesOf reads what a claim's status says.
func SharesOf(claim *resourcev1.ResourceClaim) (shares []Share) {
	for _, device := range claim.Status.Devices {
		share := Share{Device: device.Device, Conditions: map[string]metav1.Condition{}}
		if device.ShareID != nil {
			share.ShareID = string(*device.ShareID)
		}
		for _, condition := range device.Conditions {
			share.Conditions[condition.Type] = condition
		}
		if network := device.NetworkData; network != nil {
			share.Interface, share.MAC = network.InterfaceName, network.HardwareAddress
			if len(network.IPs) > 0 {
				share.Address = network.IPs[0]
			}
		}
		var data struct {
			Limits []struct {
				Direction, Mechanism string
				Requested, InForce   int64
			}
		}
		if device.Data != nil {
			_ = json.Unmarshal(device.Data.Raw, &data)
		}
		for _, limit := range data.Limits {
			share.Requested, share.InForce = limit.Requested, limit.InForce
			if words := strings.Fields(limit.Mechanism); len(words) == 5 && words[0] == "htb" { // htb class 7a6:1 on up0
				share.ClassID, share.Uplink = words[2], words[4]
			} else if len(words) == 3 && words[0] == "tbf" { // tbf on vs0123456789ab
				share.HostEnd = words[2]
			}
		}
		shares = append(shares, share)
	}
	return shares
}

// WaitShare waits until a claim's only share is in force and returns it.
func (c *Cluster) WaitShare(claim string) Share {
	c.T.Helper()
	found := c.WaitClaim(claim, "its share is in force", time.Minute, func(claim *resourcev1.ResourceClaim) bool {
		return DeviceCondition(claim, "Prepared") == "True" && DeviceCondition(claim, "Enforced") == "True"
	})
	return SharesOf(found)[0]
}

// containerPID is the process inside the node of a container's id as a pod's status has it, 0 where it does not run.
func (c *Cluster) containerPID(id string) int {
	data, err := os.ReadFile(filepath.Join("/run/containerd/io.containerd.runtime.v2.task/k8s.io", strings.TrimPrefix(id, "containerd://"), "init.pid"))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return pid
}
