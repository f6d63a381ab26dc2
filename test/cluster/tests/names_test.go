package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tranche.dev/test/cluster/harness"
)

// A host of a null backend as a process of the node, with the kubelet's directory under this name.
func startNullHost(t *testing.T, c *harness.Cluster, driver, root string) {
	t.Helper()
	build := os.Getenv("TRANCHE_BUILD")
	if _, err := os.Stat(filepath.Join(build, "backends/null_backend.so")); err != nil {
		t.Skip("the build tree has no null backend: run `make test-cluster`")
	}
	dir, err := os.MkdirTemp("/tmp", "null-host-") // short: the admin socket lies below
	if err != nil {
		t.Fatal(err)
	}
	c.AtEnd(func() { os.RemoveAll(dir) })
	configuration := filepath.Join(dir, "host.yaml")
	text := fmt.Sprintf(`apiVersion: tranche.dev/v1alpha1
kind: HostConfiguration
backends:
- {name: nothing, library: null_backend, config: {devices: 2}}
drivers:
- name: %s
  offers: [{name: whole, backend: nothing, mode: whole}]
  classes: [{name: null-whole, offer: whole}]
`, driver)
	if err := os.WriteFile(configuration, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c.Start("tranched", harness.TrancheProgram("tranched"), "--kubeconfig", harness.Kubeconfig, "--node-name", harness.Node, "--kubelet-root", root,
		"--config", configuration, "--backend-directory", filepath.Join(build, "backends"), "--state-directory", filepath.Join(dir, "state"),
		"--runtime-directory", filepath.Join(dir, "run"), "--instance", "0f8ccc60-01a5-42de-834a-279081eb7f14")
	c.WaitDevices(driver, 2, 30*time.Second)
	c.AtEnd(func() { _, _ = c.TryKubectl("", "delete", "resourceslices", "--field-selector", "spec.driver="+driver) })
}

func runNullPod(t *testing.T, c *harness.Cluster, driver string) {
	t.Helper()
	c.Apply(harness.DeviceClass("null-whole", driver, ""), harness.Claim{Name: "one", Class: "null-whole"}.YAML(), harness.Pod{Name: "one", Claims: []string{"one"}}.YAML())
	c.WaitRunning("one")
	c.WaitShare("one")
	c.DeletePod("one")
}

func TestADriverNameOf63Characters(t *testing.T) {
	driver := strings.Repeat("n", 51) + ".example.com"
	t.Run("default root", func(t *testing.T) {
		c := harness.New(t)
		startNullHost(t, c, driver, "/var/lib/kubelet")
		runNullPod(t, c, driver)
	})
	t.Run("another root", func(t *testing.T) {
		c := harness.New(t)
		root := "/var/opt/kubelet-of-a-distribution/data" // the kubelet's directory under another name
		c.Run("mkdir", "-p", root)
		c.Run("mount", "--bind", "/var/lib/kubelet", root)
		c.AtEnd(func() { c.Run("umount", root) })
		startNullHost(t, c, driver, root)
		runNullPod(t, c, driver)
	})
}

func TestAKubeletRootThatIsTooLongIsRefusedWithBothLengths(t *testing.T) {
	c := harness.New(t)
	dir := t.TempDir()
	root := filepath.Join("/var/opt", strings.Repeat("long", 25))
	configuration := filepath.Join(dir, "host.yaml")
	text := "apiVersion: tranche.dev/v1alpha1\nkind: HostConfiguration\ndrivers: [{name: d.example.com}]\n"
	if err := os.WriteFile(configuration, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := c.TryRun("timeout", "20", harness.TrancheProgram("tranched"), "--kubeconfig", harness.Kubeconfig, "--node-name", harness.Node,
		"--kubelet-root", root, "--config", configuration, "--state-directory", filepath.Join(dir, "state"), "--runtime-directory", filepath.Join(dir, "run"))
	if err == nil || strings.Contains(err.Error(), "124") {
		t.Fatalf("the host did not refuse: %v\n%s", err, out)
	}
	if !strings.Contains(out, "holds 107") || !strings.Contains(out, "has 145 bytes") {
		t.Errorf("the refusal does not name the lengths: %s", out)
	}
	t.Log(strings.TrimSpace(out))
	c.Run("rm", "-rf", root)
}
