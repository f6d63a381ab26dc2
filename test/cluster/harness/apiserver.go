package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// APIServer is an API server without a node, of one version, for one test.
type APIServer struct {
	Kubeconfig string
	Config     *rest.Config
	Client     kubernetes.Interface
}

// NewAPIServer starts one, minor version as "1.36"; it ends with the test. It needs no test node.
func NewAPIServer(t testing.TB, minor string) *APIServer {
	t.Helper()
	tools := os.Getenv("TRANCHE_CLUSTER_TOOLS")
	if tools == "" {
		t.Skip("TRANCHE_CLUSTER_TOOLS does not name test/cluster/tools: run `make test-cluster`")
	}
	dir := t.TempDir()
	tool := filepath.Join(tools, "apiserver")
	t.Cleanup(func() {
		if out, err := runWithInput("", tool, "down", dir); err != nil {
			t.Errorf("apiserver down: %v\n%s", err, out)
		}
	})
	out, err := runWithInput("", tool, "up", dir, "--version", minor)
	if err != nil {
		t.Fatalf("apiserver up: %v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	path := lines[len(lines)-1]
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	config.QPS, config.Burst = 1000, 2000
	return &APIServer{Kubeconfig: path, Config: config, Client: kubernetes.NewForConfigOrDie(config)}
}
