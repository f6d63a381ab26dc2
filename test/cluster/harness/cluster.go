// Package harness is what the cluster tests are written with. The test binary runs inside the test node (tools/node exec), so the API server, the
// kubelet's directories and the pods' network are reached directly; tools/test does all of it.
//
//	func TestPodRuns(t *testing.T) {
//		c := harness.New(t)
//		c.Apply(harness.Pod{Name: "a"}.YAML())
//		c.WaitRunning("a")
//		out := c.Exec("a", "ip", "addr")
//	}
//
// Each test has a namespace of its own, gone when it ends. A step that fails ends the test and says what it waited for; what the node knows about the
// test's objects is then written to the folder `failed/<test>` beside the node's logs.
package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// Node is the name of the only node.
	Node = "node1"
	// Image has busybox and iperf3.
	Image = "harness.local/test:1"
	// Kubeconfig is the administrator's.
	Kubeconfig = stateDir + "/keys/admin.kubeconfig"
	// PeerNamespace is the network namespace behind the uplinks up0 and up1; there 10.90.0.1/24 and 10.90.1.1/24 answer.
	PeerNamespace = "peer"

	stateDir = "/run/tranche-node"
	outDir   = stateDir + "/out" // the folder outside that outlives the node
)

// Cluster is the node as one test sees it.
type Cluster struct {
	T         testing.TB
	Namespace string
	Config    *rest.Config
	Client    kubernetes.Interface
	Dynamic   dynamic.Interface

	services map[string]bool // stopped by the test, perhaps started again
	atEnd    []func()        // last first, when the pods are gone
}

// Inside tells whether this process runs inside the test node.
func Inside() bool {
	_, err := os.Stat(Kubeconfig)
	return err == nil
}

// New connects and makes the test's namespace. Outside a node the test is skipped.
func New(t testing.TB) *Cluster {
	t.Helper()
	if !Inside() {
		t.Skip("not inside a test node: run `make test-cluster`, or `make cluster-up` and then test/cluster/tools/test")
	}
	c := Connect(t)
	label := dnsLabel(t.Name())
	c.Namespace = fmt.Sprintf("%s-%x", strings.TrimRight(label[:min(len(label), 50)], "-"), time.Now().UnixNano()&0xffffffff) // an earlier run may have left one
	c.Kubectl("create", "namespace", c.Namespace)
	t.Cleanup(c.finish)
	c.Wait("the namespace's default service account", 30*time.Second, func() (bool, string) {
		_, err := c.Client.CoreV1().ServiceAccounts(c.Namespace).Get(context.Background(), "default", metav1.GetOptions{})
		return err == nil, errorText(err)
	})
	return c
}

// Connect is New without a namespace and without an end: for looking at the node.
func Connect(t testing.TB) *Cluster {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", Kubeconfig)
	if err != nil {
		t.Fatalf("kubeconfig: %v", err)
	}
	config.QPS, config.Burst = 1000, 2000
	return &Cluster{T: t, Namespace: "default", Config: config, Client: kubernetes.NewForConfigOrDie(config), Dynamic: dynamic.NewForConfigOrDie(config),
		services: map[string]bool{}}
}

// Context ends shortly before the test's deadline.
func (c *Cluster) Context() context.Context {
	if t, ok := c.T.(*testing.T); ok {
		return t.Context()
	}
	return context.Background()
}

// AtEnd runs a function when the test has ended and its pods are gone, last registered first.
func (c *Cluster) AtEnd(f func()) { c.atEnd = append(c.atEnd, f) }

// The order matters: components back, pods away while their drivers still run, then drivers and objects.
func (c *Cluster) finish() {
	if c.T.Failed() {
		c.Capture()
	}
	for name := range c.services {
		c.Service(name).Start()
	}
	if len(c.services) > 0 {
		c.WaitAPI(time.Minute)
	}
	if out, err := c.TryKubectl("", "delete", "pod", "--all", "--wait=true", "--timeout=60s"); err != nil {
		c.T.Errorf("the test's pods do not go: %v\n%s", err, out)
		_, _ = c.TryKubectl("", "delete", "pod", "--all", "--force", "--grace-period=0", "--wait=false")
	}
	for i := len(c.atEnd) - 1; i >= 0; i-- {
		c.atEnd[i]()
	}
	_, _ = c.TryKubectl("", "delete", "namespace", c.Namespace, "--wait=false")
}

// Wait asks until yes or the deadline; then the test fails with the last answer.
func (c *Cluster) Wait(what string, deadline time.Duration, done func() (bool, string)) {
	c.T.Helper()
	start, last := time.Now(), ""
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		ok, said := done()
		if ok {
			return
		}
		last = said
		if time.Since(start) > deadline {
			c.T.Fatalf("not within %v: %s; last: %s", deadline, what, last)
		}
		time.Sleep(pause)
	}
}

// Never fails when the condition comes true within the time.
func (c *Cluster) Never(what string, during time.Duration, happened func() (bool, string)) {
	c.T.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if yes, said := happened(); yes {
			c.T.Fatalf("happened within %v: %s; %s", during, what, said)
		}
	}
}

// Run runs a command inside the node and returns what it wrote; a failure ends the test.
func (c *Cluster) Run(command ...string) string {
	c.T.Helper()
	out, err := c.TryRun(command...)
	if err != nil {
		c.T.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return out
}

// TryRun is Run for commands that may fail.
func (c *Cluster) TryRun(command ...string) (string, error) { return runWithInput("", command...) }

// InPeer runs a command in the network namespace behind the uplinks.
func (c *Cluster) InPeer(command ...string) string {
	c.T.Helper()
	return c.Run(append([]string{"ip", "netns", "exec", PeerNamespace}, command...)...)
}

// Tool is the path of a tool of test/cluster/tools.
func Tool(name string) string { return filepath.Join(os.Getenv("TRANCHE_CLUSTER_TOOLS"), name) }

// Service is a component of the node: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, containerd, kubelet.
type Service struct {
	c    *Cluster
	name string
}

// Service names a component. A test that stops one starts it again; should it fail before, its end does.
func (c *Cluster) Service(name string) Service { return Service{c, name} }

// Stop asks the component to end and waits.
func (s Service) Stop() { s.end("stop") }

// Kill ends it with SIGKILL.
func (s Service) Kill() { s.end("kill") }

func (s Service) end(verb string) {
	s.c.T.Helper()
	s.c.services[s.name] = true
	s.c.Run(Tool("service"), verb, s.name)
}

// PID is its process id inside the node.
func (s Service) PID() string {
	s.c.T.Helper()
	return strings.TrimSpace(s.c.Run(Tool("service"), "pid", s.name))
}

// Start starts it; a running one is left alone.
func (s Service) Start() {
	s.c.T.Helper()
	s.c.Run(Tool("service"), "start", s.name)
}

// Restart is Kill and Start.
func (s Service) Restart() {
	s.c.T.Helper()
	s.Kill()
	s.Start()
}

// Log is the path of its log.
func (s Service) Log() string { return filepath.Join(outDir, "logs", s.name+".log") }

// WaitAPI waits until the API server answers.
func (c *Cluster) WaitAPI(deadline time.Duration) {
	c.T.Helper()
	c.Wait("the API server is ready", deadline, func() (bool, string) {
		_, err := c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background())
		return err == nil, errorText(err)
	})
}

func runWithInput(input string, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// Process is a program of the test's own inside the node: a driver, an iperf3 server.
type Process struct {
	Cmd     *exec.Cmd
	LogPath string

	done chan struct{}
	once sync.Once
}

// Start starts a program; it is ended with the test. Its output goes to a log that Capture keeps.
func (c *Cluster) Start(name string, command ...string) *Process {
	c.T.Helper()
	dir := filepath.Join(outDir, "logs", "tests", dnsLabel(c.T.Name()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		c.T.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		c.T.Fatal(err)
	}
	defer log.Close()
	p := &Process{Cmd: exec.Command(command[0], command[1:]...), LogPath: log.Name(), done: make(chan struct{})}
	p.Cmd.Stdout, p.Cmd.Stderr = log, log
	if err := p.Cmd.Start(); err != nil {
		c.T.Fatalf("%s: %v", name, err)
	}
	go func() {
		_ = p.Cmd.Wait()
		close(p.done)
	}()
	c.AtEnd(p.Stop)
	return p
}

// Stop asks the program to end, and insists after ten seconds.
func (p *Process) Stop() {
	p.once.Do(func() {
		_ = p.Cmd.Process.Signal(os.Interrupt)
		select {
		case <-p.done:
		case <-time.After(10 * time.Second):
			p.Kill()
		}
	})
}

// Kill ends it with SIGKILL and waits.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.done
}

// Ended tells whether it has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Log is what it has written so far.
func (p *Process) Log() string {
	data, _ := os.ReadFile(p.LogPath)
	return string(data)
}

// dnsLabel makes a namespace's name of a test's.
func dnsLabel(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else {
			b.WriteByte('-')
		}
	}
	s := b.String()
	return strings.Trim(s[:min(len(s), 60)], "-")
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
