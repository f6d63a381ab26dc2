package tests

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"tranche.dev/test/cluster/harness"
)

func versionOf(configuration string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(configuration)))
}

// nodeEvents are the reasons and messages of what the host says about its node.
func nodeEvents(c *harness.Cluster) []string {
	return harness.Connect(c.T).EventsOf("Node", harness.Node)
}

func waitNodeEvent(c *harness.Cluster, reason, part string) {
	c.T.Helper()
	c.Wait("event "+reason+" with "+part, 2*time.Minute, func() (bool, string) {
		events := nodeEvents(c)
		for _, event := range events {
			if strings.HasPrefix(event, reason+": ") && strings.Contains(event, part) {
				return true, ""
			}
		}
		return false, strings.Join(events, "\n")
	})
}

// smallest is the least bandwidth that a share of up0 may have, as the slices say.
func smallest(c *harness.Cluster) string {
	for _, slice := range c.Slices(vnicDriver) {
		for _, device := range slice.Spec.Devices {
			if policy := device.Capacity["bandwidth"].RequestPolicy; device.Name == "up0-shared" && policy != nil && policy.ValidRange != nil {
				return policy.ValidRange.Min.String()
			}
		}
	}
	return ""
}

func TestAChangedConfigurationIsAppliedOrRefusedWithoutARestart(t *testing.T) {
	c, host := shares(t)
	podWith(c, shareOf("tenant", "up0", "50M"), "tenant")
	c.WaitRunning("tenant")
	share := c.WaitShare("tenant")
	before := host.PID()
	defer c.WatchLimits(share)()

	// Unlike what an earlier run on this node left events of.
	changed := strings.Replace(vnicConfiguration, "min: 10M", "min: 20M", 1) + "# " + c.Namespace + "\n"
	key := "key" + c.Namespace[strings.LastIndex(c.Namespace, "-")+1:]
	c.AtEnd(func() {
		host.Apply(c.Render(vnicConfiguration))
		c.Wait("the configuration of the other tests", 2*time.Minute, func() (bool, string) { return smallest(c) == "10M", smallest(c) })
	})
	host.Apply(c.Render(changed))
	waitNodeEvent(c, "ConfigurationApplied", versionOf(changed))
	c.Wait("the slices say so", 10*time.Second, func() (bool, string) { return smallest(c) == "20M", smallest(c) })

	invalid := strings.Replace(changed, "    mode: whole\n", "    mode: whole\n    "+key+": 7\n", 1)
	patch := fmt.Sprintf(`{"data": {"host.yaml": %q}}`, invalid)
	c.Kubectl("-n", harness.TrancheNamespace, "patch", "configmap", "tranche-host", "--type=merge", "-p", patch)
	waitNodeEvent(c, "ConfigurationRefused", key)
	if out := host.Ctl("status"); !strings.Contains(out, versionOf(changed)[:12]) || !strings.Contains(out, key) {
		t.Errorf("status does not say what is in force and what was refused:\n%s", out)
	}
	if smallest(c) != "20M" {
		t.Errorf("the slices say %s after a refused configuration", smallest(c))
	}
	if now := host.PID(); now != before {
		t.Errorf("the host was process %d and is %d", before, now)
	}
	if now := c.WaitShare("tenant"); !sameShare(share, now) {
		t.Errorf("the share was %+v and is %+v", share, now)
	}
}

func TestARollingUpdateLosesNothing(t *testing.T) {
	s := newSteady(t)
	c := s.c
	old := s.host.Pods()[0].Name
	watched := watchGaps(t, c)
	stop := c.WatchLimits(s.shares...)
	c.Kubectl("-n", harness.TrancheNamespace, "rollout", "restart", "daemonset/tranche-node")
	both := false
	for i := 0; ; i++ { // pods come and go all the time, whichever host answers
		s.newPodRuns(t, fmt.Sprintf("during-%d", i))
		pods := s.host.Pods()
		both = both || len(pods) > 1
		if len(pods) == 1 && pods[0].Name != old {
			break
		}
		if i > 30 {
			t.Fatalf("the update does not end: %d hosts", len(pods))
		}
	}
	if !both {
		t.Error("old and new host did not overlap")
	}
	s.host.WaitReady()
	s.newPodRuns(t, "after")
	s.expectSame(t)
	stop()
	if deleted, longest, _ := watched.read(); longest > 0 {
		t.Errorf("the update left the node without slices for %v, %d were deleted", longest, deleted)
	}
	c.DeletePod(s.pods...) // prepared by the old host
	if left := c.Run("sh", "-c", "ls /sys/class/net | grep ^vs || true"); left != "" {
		t.Errorf("host ends are left: %s", left)
	}
}
