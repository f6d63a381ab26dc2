package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"tranche.dev/test/cluster/harness"
)

// usage is what the host's process holds.
type usage struct {
	kilobytes, threads, descriptors int
}

func usageOf(t *testing.T, pid int) (u usage) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == "VmRSS:" {
			u.kilobytes, _ = strconv.Atoi(fields[1])
		}
		if len(fields) >= 2 && fields[0] == "Threads:" {
			u.threads, _ = strconv.Atoi(fields[1])
		}
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	u.descriptors = len(entries)
	return u
}

// within: at most 1 MiB more, and nothing else.
func within(after, before usage) bool {
	return after.kilobytes <= before.kilobytes+1024 && after.threads <= before.threads && after.descriptors <= before.descriptors
}

// settled is the least of what the host holds in some seconds of peace.
func settled(t *testing.T, pid int) usage {
	least := usageOf(t, pid)
	for i := 0; i < 20; i++ {
		time.Sleep(200 * time.Millisecond)
		now := usageOf(t, pid)
		least.kilobytes, least.threads, least.descriptors =
			min(least.kilobytes, now.kilobytes), min(least.threads, now.threads), min(least.descriptors, now.descriptors)
	}
	return least
}

// Pods with shares come and go, five at a time: 60 here, TRANCHE_SOAK_PODS in `make soak`.
func TestPodsInALoopLeaveNothingBehind(t *testing.T) {
	c, host := shares(t)
	total := 60
	if text := os.Getenv("TRANCHE_SOAK_PODS"); text != "" {
		total, _ = strconv.Atoi(text)
	}
	const together, warm = 5, 20
	pid := host.PID()
	var before usage
	for done := 0; done < total; done += together {
		if done == warm {
			before = settled(t, pid)
		}
		var names, manifests []string
		for i := range together {
			name := fmt.Sprintf("p%d", done+i)
			names = append(names, name)
			manifests = append(manifests, shareOf(name, fmt.Sprintf("up%d", i%2), "20M"), harness.Pod{Name: name, Claims: []string{name}}.YAML())
		}
		all := strings.Join(manifests, "---\n")
		if out, err := c.TryKubectl(all, "create", "-f", "-"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		c.WaitRunning(names...)
		c.DeletePod(names...)
		c.Kubectl(append([]string{"delete", "resourceclaim", "--wait=false"}, names...)...)
	}
	// The RPC library keeps a thread that it needed for a moment for up to half a minute.
	after := settled(t, pid)
	for end := time.Now().Add(45 * time.Second); !within(after, before) && time.Now().Before(end); {
		after = settled(t, pid)
	}
	t.Logf("%d pods; the host after %d: %+v, at the end: %+v", total, warm, before, after)
	if host.PID() != pid {
		t.Errorf("the host was process %d and is %d", pid, host.PID())
	}
	if !within(after, before) {
		t.Errorf("the host grows: %+v after %d pods, %+v after %d; its threads:\n%s", before, warm, after, total,
			c.Run("sh", "-c", fmt.Sprintf("cat /proc/%d/task/*/comm | sort | uniq -c", pid)))
	}

	var page struct {
		Records []struct{ Action, Outcome, ClaimUID string }
	}
	prepared, unprepared := map[string]int{}, map[string]int{}
	if err := json.Unmarshal([]byte(host.Ctl("audit", "--tenant", c.Namespace, "--limit", "10000", "-o", "json")), &page); err != nil {
		t.Fatal(err)
	}
	for _, record := range page.Records {
		if record.Outcome != "OK" {
			t.Errorf("a record says %+v", record)
		} else if record.Action == "prepare" {
			prepared[record.ClaimUID]++
		} else if record.Action == "unprepare" {
			unprepared[record.ClaimUID]++
		}
	}
	if len(prepared) != total || len(unprepared) != total {
		t.Errorf("%d claims were prepared and %d unprepared of %d", len(prepared), len(unprepared), total)
	}
	for claim := range prepared {
		if unprepared[claim] == 0 {
			t.Errorf("claim %s was prepared and never unprepared", claim)
		}
	}
	if left := c.Run("sh", "-c", "ls /sys/class/net | grep ^vs || true; ls /var/run/cdi"); left != "" {
		t.Errorf("left on the node: %s", left)
	}
}
