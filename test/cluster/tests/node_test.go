// Package tests holds what is tested on a real node. `make test-cluster` runs it; harness says how a test is written.
package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tranche.dev/test/cluster/harness"
)

func TestNodeIsReady(t *testing.T) {
	c := harness.New(t)
	node, err := c.Client.CoreV1().Nodes().Get(t.Context(), harness.Node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			t.Errorf("node is not ready: %s", condition.Message)
		}
	}
	if !strings.HasPrefix(node.Status.NodeInfo.KubeletVersion, "v1.37.") {
		t.Errorf("kubelet version is %s", node.Status.NodeInfo.KubeletVersion)
	}
}

func TestPlainPodRunsAndAnswers(t *testing.T) {
	c := harness.New(t)
	c.Apply(harness.Pod{Name: "plain"}.YAML())
	c.WaitRunning("plain")
	if out := c.Exec("plain", "hostname"); strings.TrimSpace(out) != "plain" {
		t.Errorf("hostname says %q", out)
	}
	if out := c.Nsenter("plain", "ip", "-br", "addr", "show", "eth0"); !strings.Contains(out, c.Pod("plain").Status.PodIP) {
		t.Errorf("eth0 is %q, the pod's address %s", out, c.Pod("plain").Status.PodIP)
	}
	c.DeletePod("plain")
}

func TestUplinksReachThePeer(t *testing.T) {
	c := harness.New(t)
	for _, n := range []string{"0", "1"} {
		if _, err := os.Stat("/sys/class/net/up" + n); err != nil {
			t.Errorf("sysfs is another namespace's: %v", err)
		}
		if out := c.Run("tc", "qdisc", "show", "dev", "up"+n); strings.Contains(out, "htb") {
			t.Errorf("up%s already has a qdisc: %s", n, out)
		}
		c.Run("ip", "addr", "add", "10.90."+n+".9/24", "dev", "up"+n)
		c.AtEnd(func() { c.Run("ip", "addr", "flush", "dev", "up"+n) })
		c.Run("busybox", "ping", "-c", "1", "-W", "2", "10.90."+n+".1")
	}
}

func TestPodGetsADeviceFromAGoDriver(t *testing.T) {
	c := harness.New(t)
	const driver = "ref.example.com"
	binary := filepath.Join(os.Getenv("TRANCHE_CLUSTER_BUILD"), "refdriver")
	p := c.Start("refdriver", binary, "--kubeconfig", harness.Kubeconfig, "--driver-name", driver, "--num-devices", "1")
	c.WaitDevices(driver, 1, 20*time.Second)
	c.Apply(harness.DeviceClass(driver, driver, ""), harness.Claim{Name: "one", Class: driver}.YAML(), harness.Claim{Name: "two", Class: driver}.YAML(),
		harness.Pod{Name: "first", Claims: []string{"one"}}.YAML())
	c.WaitRunning("first")
	if env := c.Exec("first", "env"); !strings.Contains(env, "REF_DEVICE=dev-0") || !strings.Contains(env, "REF_CLAIM="+string(c.ClaimOf("one").UID)) {
		t.Errorf("the container's environment lacks the device:\n%s\n%s", env, p.Log())
	}
	c.Apply(harness.Pod{Name: "second", Claims: []string{"two"}}.YAML())
	if why := c.WaitUnschedulable("second"); !strings.Contains(why, "cannot allocate all claims") {
		t.Errorf("the scheduler says %q", why)
	}
	c.DeletePod("first")
	c.WaitRunning("second")
	c.DeletePod("second")
	if specs, _ := filepath.Glob("/var/run/cdi/" + driver + "*"); len(specs) != 0 {
		t.Errorf("CDI specs are left: %v", specs)
	}
}

func TestPodsSurviveRestartsOfTheNodesComponents(t *testing.T) {
	c := harness.New(t)
	c.Apply(harness.Pod{Name: "steady"}.YAML())
	c.WaitRunning("steady")
	before := c.PodPID("steady")
	for _, name := range []string{"kubelet", "containerd", "kube-apiserver"} {
		c.Service(name).Restart()
	}
	c.WaitAPI(time.Minute)
	c.Apply(harness.Pod{Name: "after"}.YAML())
	c.WaitRunning("after", "steady")
	if now := c.PodPID("steady"); now != before {
		t.Errorf("the container was process %s and is %s", before, now)
	}
}
