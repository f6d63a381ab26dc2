package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubectl runs kubectl in the test's namespace and returns what it printed; a failure ends the test.
func (c *Cluster) Kubectl(args ...string) string {
	c.T.Helper()
	out, err := c.TryKubectl("", args...)
	if err != nil {
		c.T.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// TryKubectl is Kubectl for commands that may fail, with an input.
func (c *Cluster) TryKubectl(input string, args ...string) (string, error) {
	return runWithInput(input, append([]string{"kubectl", "--kubeconfig", Kubeconfig, "--namespace", c.Namespace}, args...)...)
}

// Apply applies manifests in the test's namespace. Objects without a namespace are deleted with the test.
func (c *Cluster) Apply(manifests ...string) {
	c.T.Helper()
	for _, m := range manifests {
		if out, err := c.TryKubectl(m, "apply", "-f", "-"); err != nil {
			c.T.Fatalf("kubectl apply: %v\n%s\n%s", err, out, m)
		}
	}
	c.AtEnd(func() {
		for _, m := range manifests {
			_, _ = c.TryKubectl(m, "delete", "--ignore-not-found", "--wait=false", "-f", "-")
		}
	})
}

// Pod is a pod of one container with claims.
type Pod struct {
	Name    string
	Claims  []string // names of ResourceClaims
	Command string   // for sh -c; left out: sleep
	Grace   int      // seconds it has to end; left out: 1
}

// YAML is the pod's manifest. It ends within its grace of being deleted, yet not before its claims are unprepared.
func (p Pod) YAML() string {
	command := p.Command
	if command == "" {
		command = "sleep 1000000"
	}
	var refs, uses []string
	for _, name := range p.Claims {
		refs = append(refs, fmt.Sprintf("{name: %s, resourceClaimName: %s}", name, name))
		uses = append(uses, fmt.Sprintf("{name: %s}", name))
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: %d
  resourceClaims: [%s]
  containers:
  - name: main
    image: %s
    imagePullPolicy: Never
    command: [sh, -c, %s]
    resources: {claims: [%s]}
`, p.Name, max(p.Grace, 1), strings.Join(refs, ", "), Image, quoted(command), strings.Join(uses, ", "))
}

func quoted(text string) string {
	out, _ := json.Marshal(text)
	return string(out)
}

// Claim is a ResourceClaim with one request.
type Claim struct {
	Name, Class string
	Capacity    map[string]string // of the request
	Parameters  string            // opaque configuration as JSON, with Driver
	Driver      string
}

// YAML is the claim's manifest.
func (r Claim) YAML() string {
	exactly := map[string]any{"deviceClassName": r.Class}
	if len(r.Capacity) > 0 {
		exactly["capacity"] = map[string]any{"requests": r.Capacity}
	}
	devices := map[string]any{"requests": []any{map[string]any{"name": "r", "exactly": exactly}}}
	if r.Parameters != "" {
		devices["config"] = []any{map[string]any{"opaque": map[string]any{"driver": r.Driver, "parameters": json.RawMessage(r.Parameters)}}}
	}
	return manifest("ResourceClaim", r.Name, map[string]any{"devices": devices})
}

// DeviceClass is a class of every device of a driver that fits an expression ("" fits all).
func DeviceClass(name, driver, expression string) string {
	cel := fmt.Sprintf("device.driver == %q", driver)
	if expression != "" {
		cel += " && (" + expression + ")"
	}
	return manifest("DeviceClass", name, map[string]any{"selectors": []any{map[string]any{"cel": map[string]any{"expression": cel}}}})
}

func manifest(kind, name string, spec map[string]any) string {
	out, err := json.Marshal(map[string]any{"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec})
	if err != nil {
		panic(err)
	}
	return string(out)
}

// Pod reads a pod.
func (c *Cluster) Pod(name string) *corev1.Pod {
	c.T.Helper()
	pod, err := c.Client.CoreV1().Pods(c.Namespace).Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.T.Fatalf("pod %s: %v", name, err)
	}
	return pod
}

// ClaimOf reads a ResourceClaim.
func (c *Cluster) ClaimOf(name string) *resourcev1.ResourceClaim {
	c.T.Helper()
	claim, err := c.Client.ResourceV1().ResourceClaims(c.Namespace).Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.T.Fatalf("claim %s: %v", name, err)
	}
	return claim
}

// WaitClaim waits until a claim looks as wanted and returns it.
func (c *Cluster) WaitClaim(name, what string, deadline time.Duration, wanted func(*resourcev1.ResourceClaim) bool) (found *resourcev1.ResourceClaim) {
	c.T.Helper()
	c.Wait("claim "+name+": "+what, deadline, func() (bool, string) {
		claim, err := c.Client.ResourceV1().ResourceClaims(c.Namespace).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		found = claim
		status, _ := json.Marshal(claim.Status)
		return wanted(claim), string(status)
	})
	return found
}

// DeviceCondition is a condition of the claim's first device: "True", "False", "Unknown", or "" where it has none.
func DeviceCondition(claim *resourcev1.ResourceClaim, kind string) string {
	for _, device := range claim.Status.Devices {
		for _, condition := range device.Conditions {
			if condition.Type == kind {
				return string(condition.Status)
			}
		}
	}
	return ""
}

// DeviceConditionChanges follows a condition of the claim's first device through a watch until the test ends or stop is called; stop returns the values it
// had, in order.
func (c *Cluster) DeviceConditionChanges(claim, kind string) (stop func() []string) {
	c.T.Helper()
	ctx, cancel := context.WithCancel(c.Context())
	watch, err := c.Client.ResourceV1().ResourceClaims(c.Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + claim})
	if err != nil {
		cancel()
		c.T.Fatalf("watch of claim %s: %v", claim, err)
	}
	values := make(chan []string, 1)
	go func() {
		var seen []string
		for event := range watch.ResultChan() {
			if object, ok := event.Object.(*resourcev1.ResourceClaim); ok {
				if now := DeviceCondition(object, kind); len(seen) == 0 || seen[len(seen)-1] != now {
					seen = append(seen, now)
				}
			}
		}
		values <- seen
	}()
	return func() []string {
		cancel()
		watch.Stop()
		return <-values
	}
}

// WaitEvent waits for an event about an object by its reason and returns its message.
func (c *Cluster) WaitEvent(kind, name, reason string, deadline time.Duration) (message string) {
	c.T.Helper()
	c.Wait(fmt.Sprintf("event %s about %s %s", reason, kind, name), deadline, func() (bool, string) {
		events := c.EventsOf(kind, name)
		for _, event := range events {
			if rest, ok := strings.CutPrefix(event, reason+": "); ok {
				message = rest
				return true, ""
			}
		}
		return false, strings.Join(events, "; ")
	})
	return message
}

// WaitRunning waits until the pods are ready.
func (c *Cluster) WaitRunning(names ...string) {
	c.T.Helper()
	c.WaitRunningWithin(time.Minute, names...)
}

// WaitRunningWithin is WaitRunning with another deadline.
func (c *Cluster) WaitRunningWithin(deadline time.Duration, names ...string) {
	c.T.Helper()
	for _, name := range names {
		c.Wait("pod "+name+" is ready", deadline, func() (bool, string) {
			pod, err := c.Client.CoreV1().Pods(c.Namespace).Get(context.Background(), name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			return conditionOf(pod, corev1.PodReady) == corev1.ConditionTrue, c.describe(pod)
		})
	}
}

// WaitUnschedulable waits until the scheduler has said why the pod stays pending, and returns its words.
func (c *Cluster) WaitUnschedulable(name string) (message string) {
	c.T.Helper()
	c.Wait("pod "+name+" is unschedulable", time.Minute, func() (bool, string) {
		pod, err := c.Client.CoreV1().Pods(c.Namespace).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
				message = condition.Message
				return true, ""
			}
		}
		return false, c.describe(pod)
	})
	return message
}

// DeletePod deletes pods and waits until they are gone.
func (c *Cluster) DeletePod(names ...string) {
	c.T.Helper()
	c.Kubectl(append([]string{"delete", "pod", "--wait=false"}, names...)...)
	for _, name := range names {
		c.Wait("pod "+name+" is gone", time.Minute, func() (bool, string) {
			pod, err := c.Client.CoreV1().Pods(c.Namespace).Get(context.Background(), name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, ""
			}
			if err != nil {
				return false, err.Error()
			}
			return false, c.describe(pod)
		})
	}
}

// Exec runs a command in a pod's container through the API server.
func (c *Cluster) Exec(pod string, command ...string) string {
	c.T.Helper()
	return c.Kubectl(append([]string{"exec", pod, "--"}, command...)...)
}

// PodPID is the process id, inside the node, of a pod's first container.
func (c *Cluster) PodPID(name string) string {
	c.T.Helper()
	pod := c.Pod(name)
	if len(pod.Status.ContainerStatuses) == 0 {
		c.T.Fatalf("pod %s has no container yet", name)
	}
	pid := c.containerPID(pod.Status.ContainerStatuses[0].ContainerID)
	if pid == 0 {
		c.T.Fatalf("the container of pod %s does not run", name)
	}
	return strconv.Itoa(pid)
}

// Nsenter runs one of the node's own commands in a pod's network namespace.
func (c *Cluster) Nsenter(pod string, command ...string) string {
	c.T.Helper()
	return c.Run(append([]string{"nsenter", "-t", c.PodPID(pod), "-n"}, command...)...)
}

// Slices are a driver's ResourceSlices.
func (c *Cluster) Slices(driver string) []resourcev1.ResourceSlice {
	c.T.Helper()
	list, err := c.Client.ResourceV1().ResourceSlices().List(context.Background(), metav1.ListOptions{FieldSelector: "spec.driver=" + driver})
	if err != nil {
		c.T.Fatalf("slices of %s: %v", driver, err)
	}
	return list.Items
}

// WaitDevices waits until a driver's slices hold this many devices.
func (c *Cluster) WaitDevices(driver string, count int, deadline time.Duration) {
	c.T.Helper()
	c.Wait(fmt.Sprintf("%s publishes %d devices", driver, count), deadline, func() (bool, string) {
		devices := 0
		for _, slice := range c.Slices(driver) {
			devices += len(slice.Spec.Devices)
		}
		return devices == count, fmt.Sprintf("%d devices", devices)
	})
}

// EventsOf are the reasons and messages of the events about an object, oldest first.
func (c *Cluster) EventsOf(kind, name string) (out []string) {
	c.T.Helper()
	list, err := c.Client.CoreV1().Events(c.Namespace).List(context.Background(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + name})
	if err != nil {
		return []string{err.Error()}
	}
	for _, event := range list.Items {
		out = append(out, event.Reason+": "+event.Message)
	}
	return out
}

// ImportImage loads an image archive into the node.
func (c *Cluster) ImportImage(path string) {
	c.T.Helper()
	c.Run("ctr", "-n", "k8s.io", "images", "import", "--local", path)
}

func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return corev1.ConditionUnknown
}

func (c *Cluster) describe(pod *corev1.Pod) string {
	said := []string{string(pod.Status.Phase)}
	for _, condition := range pod.Status.Conditions {
		if condition.Status != corev1.ConditionTrue && condition.Message != "" {
			said = append(said, condition.Message)
		}
	}
	return strings.Join(append(said, c.EventsOf("Pod", pod.Name)...), "; ")
}
