package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche.dev/test/cluster/harness"
)

// expectInterface holds the pod's interface against what its claim's status says of it.
func expectInterface(t *testing.T, c *harness.Cluster, pod string, share harness.Share) {
	t.Helper()
	if share.Interface == "" || share.Address == "" || share.MAC == "" {
		t.Errorf("the status of claim %s lacks network data: %+v", pod, share)
		return
	}
	out := c.Nsenter(pod, "ip", "-o", "addr", "show", "dev", share.Interface)
	if !strings.Contains(out, " "+share.Address+" ") {
		t.Errorf("%s of pod %s has not the address %s: %s", share.Interface, pod, share.Address, out)
	}
	if link := c.Nsenter(pod, "ip", "-o", "link", "show", "dev", share.Interface); !strings.Contains(strings.ToLower(link), strings.ToLower(share.MAC)) {
		t.Errorf("%s of pod %s has not the MAC %s: %s", share.Interface, pod, share.MAC, link)
	}
}

// sameShare tells whether two readings are of one share with one limit.
func sameShare(a, b harness.Share) bool {
	return a.ShareID == b.ShareID && a.Device == b.Device && a.HostEnd == b.HostEnd && a.ClassID == b.ClassID && a.Requested == b.Requested &&
		a.InForce == b.InForce && a.Address == b.Address && a.MAC == b.MAC && a.Interface == b.Interface
}

func TestALimitChangedByHandIsToldAndPutRight(t *testing.T) {
	c, _ := shares(t)
	podWith(c, shareOf("tenant", "up0", "50M"), "tenant")
	c.WaitRunning("tenant")
	share := c.WaitShare("tenant")
	expectInterface(t, c, "tenant", share)
	if share.InForce != 50*mega || share.Conditions["Enforced"].Reason != "LimitsVerified" {
		t.Errorf("the status says %+v", share)
	}

	stop := c.DeviceConditionChanges("tenant", "Enforced")
	changed := time.Now()
	c.Run("tc", "class", "change", "dev", share.Uplink, "parent", "7a6:ffff", "classid", share.ClassID, "htb", "rate", "400mbit", "ceil", "400mbit")
	if limits, err := harness.ReadLimits(share); err != nil || limits.Rate != 400*mega {
		t.Fatalf("the class was not changed: %+v %v", limits, err)
	}
	c.Wait("the kernel's limit is right again", time.Minute, func() (bool, string) {
		limits, err := harness.ReadLimits(share)
		return err == nil && limits.Rate == 50*mega && limits.Ceil == 50*mega, fmt.Sprintf("%+v %v", limits, err)
	})
	t.Logf("right again after %.1f s", time.Since(changed).Seconds())
	if message := c.WaitEvent("ResourceClaim", "tenant", "LimitDrift", 30*time.Second); !strings.Contains(message, "400000000") {
		t.Errorf("the event does not say what was in force: %q", message)
	}
	c.WaitEvent("ResourceClaim", "tenant", "LimitRestored", 30*time.Second)
	again := c.WaitShare("tenant")
	if seen := stop(); !slices.Equal(seen, []string{"True", "False", "True"}) && !slices.Equal(seen, []string{"False", "True"}) {
		t.Errorf("a watch saw Enforced as %v", seen)
	}
	if !sameShare(share, again) {
		t.Errorf("the share was %+v and is %+v", share, again)
	}
}
