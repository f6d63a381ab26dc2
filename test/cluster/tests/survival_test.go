package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"tranche.dev/test/cluster/harness"
)

// Two pods with shares, one on each uplink, that must not notice what happens around them.
type steady struct {
	c      *harness.Cluster
	host   *harness.Tranche
	pods   []string
	shares []harness.Share
}

func newSteady(t *testing.T) *steady {
	t.Helper()
	c, host := shares(t)
	s := &steady{c: c, host: host, pods: []string{"steady-0", "steady-1"}}
	podWith(c, shareOf("steady-0", "up0", "50M"), "steady-0")
	podWith(c, shareOf("steady-1", "up1", "70M"), "steady-1")
	c.WaitRunning(s.pods...)
	for _, pod := range s.pods {
		s.shares = append(s.shares, c.WaitShare(pod))
	}
	return s
}

// expectSame: pods run, their shares are the same in the claim's status, in the kernel and in the pod, and the peer answers.
func (s *steady) expectSame(t *testing.T) {
	t.Helper()
	s.c.WaitRunning(s.pods...)
	for i, pod := range s.pods {
		if now := s.c.WaitShare(pod); !sameShare(now, s.shares[i]) {
			t.Errorf("the share of %s was %+v and is %+v", pod, s.shares[i], now)
		}
		if limits, err := harness.ReadLimits(s.shares[i]); err != nil || limits.Rate != s.shares[i].Requested || limits.Receive != s.shares[i].Requested {
			t.Errorf("the kernel has %+v of %+v: %v", limits, s.shares[i], err)
		}
		expectInterface(t, s.c, pod, s.shares[i])
		s.c.Nsenter(pod, "busybox", "ping", "-c", "1", "-W", "5", fmt.Sprintf("10.90.%d.1", i))
	}
	s.c.WaitDevices(vnicDriver, 4, 20*time.Second)
}

// newPodRuns: a pod that comes now gets its share, and gives it back.
func (s *steady) newPodRuns(t *testing.T, name string) {
	t.Helper()
	podWith(s.c, shareOf(name, "up0", "20M"), name)
	s.c.WaitRunningWithin(3*time.Minute, name) // after an outage the kubelet and the scheduler wait up to a minute before they try again
	share := s.c.WaitShare(name)
	s.c.DeletePod(name)
	if _, err := harness.ReadLimits(share); err == nil {
		t.Errorf("the share of %s is still in force: %+v", name, share)
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

// pausePID is the process that holds a pod's namespaces: the one named pause in the network namespace of the pod's container.
func pausePID(t *testing.T, container string) int {
	t.Helper()
	want, err := os.Readlink("/proc/" + container + "/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		dir := filepath.Dir(name)
		comm, _ := os.ReadFile(name)
		if ns, _ := os.Readlink(dir + "/ns/net"); ns == want && strings.TrimSpace(string(comm)) == "pause" {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			return pid
		}
	}
	t.Fatalf("no pause process beside process %s", container)
	return 0
}

// gaps follows the driver's slices: how often they went away, and the longest time until one was there again while the API server answered.
type gaps struct {
	mutex   sync.Mutex
	live    map[string]bool
	since   time.Time
	Deleted int
	Longest time.Duration
}

func watchGaps(t *testing.T, c *harness.Cluster) *gaps {
	t.Helper()
	g := &gaps{live: map[string]bool{}}
	stream, err := c.Client.ResourceV1().ResourceSlices().Watch(c.Context(), metav1.ListOptions{FieldSelector: "spec.driver=" + vnicDriver})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Stop)
	go func() {
		for event := range stream.ResultChan() {
			slice, ok := event.Object.(*resourcev1.ResourceSlice)
			if !ok {
				continue
			}
			g.mutex.Lock()
			if event.Type == watch.Deleted {
				delete(g.live, slice.Name)
				g.Deleted++
				if len(g.live) == 0 {
					g.since = time.Now()
				}
			} else if !g.live[slice.Name] {
				if len(g.live) == 0 && !g.since.IsZero() {
					g.Longest = max(g.Longest, time.Since(g.since))
				}
				g.live[slice.Name] = true
			}
			g.mutex.Unlock()
		}
	}()
	return g
}

func (g *gaps) read() (deleted int, longest time.Duration, present bool) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.Deleted, g.Longest, len(g.live) > 0
}

func deleteSlices(t *testing.T, c *harness.Cluster) {
	t.Helper()
	if err := c.Client.ResourceV1().ResourceSlices().DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: "spec.driver=" + vnicDriver}); err != nil {
		t.Fatal(err)
	}
}

func TestSlicesComeBackWithinTenSeconds(t *testing.T) {
	c, _ := shares(t)
	watched := watchGaps(t, c)
	c.Wait("the slices are watched", 10*time.Second, func() (bool, string) { _, _, present := watched.read(); return present, "none" })
	back := func(what string, before int) {
		t.Helper()
		c.Wait("slices went and came back after "+what, time.Minute, func() (bool, string) {
			deleted, _, present := watched.read()
			return deleted > before && present, fmt.Sprintf("%d deleted, present: %v", deleted, present)
		})
		c.WaitDevices(vnicDriver, 4, 10*time.Second)
		_, longest, _ := watched.read()
		t.Logf("after %s: without slices for %v", what, longest.Round(time.Millisecond))
		if longest > 10*time.Second {
			t.Errorf("after %s: without slices for %v", what, longest)
		}
	}
	deleteSlices(t, c)
	back("deleting them by hand", 0)
	deleted, _, _ := watched.read()
	c.Service("kubelet").Restart()
	back("a restart of the kubelet", deleted)
}

func TestSharesSurviveWhatHappensAroundThem(t *testing.T) {
	s := newSteady(t)
	c := s.c
	step := func(name string, watch []harness.Share, body func(t *testing.T)) {
		if t.Failed() {
			return
		}
		started := time.Now()
		stop := c.WatchLimits(watch...)
		body(t)
		s.expectSame(t)
		stop()
		t.Logf("%s: %.1f s", name, time.Since(started).Seconds())
	}

	step("container restart", s.shares, func(t *testing.T) {
		pid, _ := strconv.Atoi(c.PodPID("steady-0"))
		kill(t, pid)
		c.Wait("the container runs again", time.Minute, func() (bool, string) {
			status := c.Pod("steady-0").Status.ContainerStatuses[0]
			return status.RestartCount == 1 && status.Ready, fmt.Sprintf("%+v", status)
		})
	})
	step("pause process killed", s.shares[1:], func(t *testing.T) {
		stop := c.WatchCaps(s.shares[0])
		defer stop()
		kill(t, pausePID(t, c.PodPID("steady-0")))
		c.Wait("the sandbox is a new one", 2*time.Minute, func() (bool, string) {
			status := c.Pod("steady-0").Status.ContainerStatuses[0]
			return status.RestartCount == 2 && status.Ready, fmt.Sprintf("%+v", status)
		})
	})
	step("kubelet restart", s.shares, func(t *testing.T) {
		c.Service("kubelet").Restart()
		s.newPodRuns(t, "after-kubelet")
	})
	step("host killed", s.shares, func(t *testing.T) {
		before := s.host.PID()
		kill(t, before)
		c.Wait("the host runs again", time.Minute, func() (bool, string) {
			pods := s.host.Pods()
			return len(pods) == 1 && pods[0].Status.ContainerStatuses[0].Ready && pods[0].Status.ContainerStatuses[0].RestartCount > 0, ""
		})
		s.newPodRuns(t, "after-host")
	})
	step("containerd restart", s.shares, func(t *testing.T) {
		c.Service("containerd").Restart()
		s.newPodRuns(t, "after-containerd")
	})
	step("API server down", s.shares, func(t *testing.T) {
		away := 40 * time.Second
		if text := os.Getenv("TRANCHE_SOAK_OUTAGE"); text != "" {
			away, _ = time.ParseDuration(text)
		}
		c.Service("kube-apiserver").Kill()
		time.Sleep(away)
		c.Service("kube-apiserver").Start()
		c.WaitAPI(time.Minute)
		deleteSlices(t, c)
		started := time.Now()
		c.WaitDevices(vnicDriver, 4, 10*time.Second)
		t.Logf("slices deleted after the outage are back after %.1f s", time.Since(started).Seconds())
		c.Service("kube-scheduler").Restart()
		c.Service("kube-controller-manager").Restart()
		s.newPodRuns(t, "after-api")
	})
}
