package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"tranche.dev/test/cluster/harness"
)

// wholeOf asks for an uplink for one claim alone.
func wholeOf(name, uplink string) string {
	return claimOf(name, "vnic-whole", fmt.Sprintf(`device.attributes["%s"].parent == "%s"`, vnicDriver, uplink), "")
}

func TestDistinctParentsForTwoRequestsOfOneClaim(t *testing.T) {
	c, _ := shares(t)
	podWith(c, `apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: both}
spec:
  devices:
    requests:
    - name: one
      exactly: {deviceClassName: vnic-shared, capacity: {requests: {bandwidth: 30M}}}
    - name: two
      exactly: {deviceClassName: vnic-shared, capacity: {requests: {bandwidth: 40M}}}
    constraints:
    - requests: [one, two]
      distinctAttribute: vnic.tranche.dev/parent
`, "both")
	c.WaitRunning("both")
	claim := c.WaitClaim("both", "two shares in its status", time.Minute, func(claim *resourcev1.ResourceClaim) bool {
		for _, share := range harness.SharesOf(claim) {
			if share.Conditions["Enforced"].Status != "True" {
				return false
			}
		}
		return len(claim.Status.Devices) == 2
	})
	found := harness.SharesOf(claim)
	if found[0].Uplink == found[1].Uplink || found[0].Interface == found[1].Interface {
		t.Errorf("both requests have one uplink or interface: %+v", found)
	}
	for _, share := range found {
		expectInterface(t, c, "both", share)
	}
	c.Exec("both", "ping", "-c", "1", "-W", "5", "10.90.0.1")
	c.Exec("both", "ping", "-c", "1", "-W", "5", "10.90.1.1")
}

func TestWholeAndShareOfOneDeviceExcludeEachOther(t *testing.T) {
	c, _ := shares(t)
	podWith(c, shareOf("tenant", "up0", "50M"), "tenant")
	c.WaitRunning("tenant")
	podWith(c, wholeOf("alone", "up0"), "alone")
	if why := c.WaitUnschedulable("alone"); !strings.Contains(why, "cannot allocate all claims") {
		t.Errorf("the scheduler says %q", why)
	}
	c.DeletePod("tenant")
	c.WaitRunning("alone")
	if share := c.WaitShare("alone"); share.ShareID != "" || share.Uplink != "up0" {
		t.Errorf("the whole device's status is %+v", share)
	}
	podWith(c, shareOf("next", "up0", "50M"), "next")
	c.WaitUnschedulable("next")
	podWith(c, shareOf("elsewhere", "up1", "50M"), "elsewhere")
	c.WaitRunning("elsewhere")
	c.DeletePod("alone")
	c.WaitRunning("next")
	c.WaitShare("next")
}

// A pod that does not end when it is asked to, so that its claim is unprepared long after the control plane has forgotten it.
func stubborn(name string) string {
	return harness.Pod{Name: name, Claims: []string{name}, Command: `trap "" TERM; while :; do sleep 1; done`, Grace: 12}.YAML()
}

func TestWhatAForceDeletedPodHoldsIsNotGivenTwice(t *testing.T) {
	c, _ := shares(t)
	c.Apply(wholeOf("old-whole", "up1"), stubborn("old-whole"), shareOf("old-share", "up0", "450M"), stubborn("old-share"))
	c.WaitRunning("old-whole", "old-share")
	kept := c.WaitShare("old-share")
	c.WaitShare("old-whole")
	podWith(c, wholeOf("new-whole", "up1"), "new-whole")
	podWith(c, shareOf("new-share", "up0", "450M"), "new-share")
	c.WaitUnschedulable("new-whole")
	c.WaitUnschedulable("new-share")

	stop := c.WatchCaps(kept)
	c.Kubectl("delete", "pod", "old-whole", "old-share", "--force", "--grace-period=0", "--wait=false")
	for _, name := range []string{"whole", "share"} {
		message := c.WaitEvent("Pod", "new-"+name, "FailedPrepareDynamicResources", 30*time.Second)
		if !strings.Contains(message, c.Namespace+"/old-"+name) || !strings.Contains(message, "retr") {
			t.Errorf("the refusal does not name the holder, or that it is retried: %q", message)
		}
		c.WaitEvent("ResourceClaim", "new-"+name, "PrepareFailed", 30*time.Second)
	}
	stop()
	c.WaitRunning("new-whole", "new-share")
	if share := c.WaitShare("new-share"); share.InForce != 450*mega {
		t.Errorf("the share is %+v", share)
	}
	c.WaitShare("new-whole")
}
