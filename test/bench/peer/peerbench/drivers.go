package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	driverName   = "gpu.example.com"
	secondDriver = "isolated.example.com"
	nodeName     = "node-a"
	loadClaims   = 200 // of a set for latencies
	heldClaims   = 500 // of the set that is held over a restart
	multiClaims  = 50  // of the set with several devices a claim
	multiCount   = 4   // devices of each of those
)

// A driver under test. Its directories are new for each.
type driver struct {
	name         string // ours, isolated, peer or lean
	isFull       bool   // everything is measured; otherwise only the load
	isIsolated   bool   // a process of ours holds the backend
	set          string // prefix of its claims' sets
	deviceFormat string
	root, memory string // on disk, on tmpfs
	command      func(devices int) []string
	change       string
}

func (d *driver) registration() string {
	return filepath.Join(d.root, "plugins_registry", driverName+"-reg.sock")
}
func (d *driver) socket() string { return d.socketOf(driverName) }
func (d *driver) socketOf(name string) string {
	return filepath.Join(d.root, "plugins", name, "dra.sock")
}
func (d *driver) cdi() string { return filepath.Join(d.memory, "cdi") }

// wipe leaves the driver as on a new node.
func (d *driver) wipe() {
	for _, path := range []string{d.root, d.memory} {
		check(os.RemoveAll(path))
	}
	for _, path := range []string{filepath.Join(d.root, "plugins"), filepath.Join(d.root, "plugins_registry"), filepath.Join(d.root, "state"), d.cdi(), filepath.Join(d.memory, "run")} {
		check(os.MkdirAll(path, 0o755))
	}
}

// A host that loads the backend into its own process, as the peer's is. Isolation is measured apart.
const hostConfiguration = `apiVersion: tranche.dev/v1alpha1
kind: HostConfiguration
backends:
- name: "null"
  library: null_backend
  isolation: %s
  config: {devicesFile: %q, env: [GPU_CLAIM=1, GPU_DEVICE=1]} # so that each claim has a CDI spec, as with the peer
  allowEdits: {env: [GPU_]}
drivers:
- name: gpu.example.com
  offers:
  - {name: whole, backend: "null", mode: whole}
  classes:
  - name: gpu.example.com
    offer: whole
    namespaces: {allow: ["*"]}
`

// One more driver beside it in the same host, the same backend in a process of its own.
const secondConfiguration = `- name: %[1]s
  offers:
  - {name: whole, backend: second, mode: whole}
  classes:
  - name: %[1]s
    offer: whole
    namespaces: {allow: ["*"]}
`
const secondBackend = `- name: second
  library: null_backend
  isolation: process
  config: {serial: SECOND, devicesFile: %q, env: [GPU_CLAIM=1, GPU_DEVICE=1]}
  allowEdits: {env: [GPU_]}
`

func (b *bench) ours() *driver {
	d := b.host("ours", func(file string) string { return fmt.Sprintf(hostConfiguration, "in-process", file) })
	d.isFull = true
	return d
}

func (b *bench) isolated() *driver {
	d := b.host("isolated", func(file string) string { return fmt.Sprintf(hostConfiguration, "process", file) })
	d.isIsolated = true
	return d
}

// both has the two isolations in one host: driverName in its own process, secondDriver in a process apart.
func (b *bench) both() *driver {
	return b.host("both", func(file string) string {
		one := fmt.Sprintf(hostConfiguration, "in-process", file)
		backends, drivers, _ := strings.Cut(one, "drivers:\n")
		return backends + fmt.Sprintf(secondBackend, file) + "drivers:\n" + drivers + fmt.Sprintf(secondConfiguration, secondDriver)
	})
}

// host is ours with the configuration that the file of the number of devices gives.
func (b *bench) host(name string, configure func(devicesFile string) string) *driver {
	d := &driver{name: name, set: "ours", deviceFormat: "null-%d-whole", root: filepath.Join(b.disk, name[:1]), memory: filepath.Join(b.memory, name[:1])}
	file := filepath.Join(d.root, "devices")
	d.change = fmt.Sprintf(`read n < %[1]s && read most < %[1]s.most && echo $((2 * most - 1 - n)) > %[1]s`, file)
	d.command = func(devices int) []string {
		count := []byte(strconv.Itoa(devices) + "\n")
		configuration := filepath.Join(d.root, "host.yaml")
		check(os.WriteFile(file, count, 0o644))
		check(os.WriteFile(file+".most", count, 0o644))
		check(os.WriteFile(configuration, []byte(configure(file)), 0o644))
		return []string{filepath.Join(b.build, "bin", "tranched"), "--kubeconfig", b.kubeconfig, "--kubelet-root", d.root, "--config", configuration,
			"--node-name", nodeName, "--backend-directory", filepath.Join(b.build, "backends"), "--state-directory", filepath.Join(d.root, "state"),
			"--cdi-directory", d.cdi(), "--runtime-directory", filepath.Join(d.memory, "run")}
	}
	return d
}

// With the client limit lifted: as shipped, a Go driver is held to 5 requests a second.
func (b *bench) peer(name string, flags ...string) *driver {
	d := &driver{name: name, isFull: name == "peer", set: "peer", deviceFormat: "gpu-%d", root: filepath.Join(b.disk, name[:1]), memory: filepath.Join(b.memory, name[:1])}
	d.change = `kill -USR1 "$DRIVER_PID"`
	d.command = func(devices int) []string {
		return append([]string{filepath.Join(b.bin, "gopeer"), "--kubeconfig", b.kubeconfig, "--node-name", nodeName,
			"--kubelet-registrar-directory-path", filepath.Join(d.root, "plugins_registry"), "--kubelet-plugins-directory-path", filepath.Join(d.root, "plugins"),
			"--cdi-root", d.cdi(), "--kube-api-qps", "100000", "--kube-api-burst", "100000", "--num-devices", strconv.Itoa(devices)}, flags...)
	}
	return d
}

func (b *bench) drivers() []*driver {
	return []*driver{b.ours(), b.isolated(), b.peer("lean", "--lean"), b.peer("peer")}
}
