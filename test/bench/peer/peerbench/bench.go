package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// failure ends the run: it is what check panics with, and run recovers.
type failure struct{ error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// samples are figures by driver and name, one a round.
type samples map[string]map[string][]float64

type bench struct {
	root, build, bin, tools string
	disk, memory            string // scratch
	kubeconfig              string
	servers                 []int // processes of the API server
	samples                 samples
	steps, disturbed        int

	mutex  sync.Mutex
	kept   int // the driver that runs, 0: none
	closed bool
}

func newBench(root string) (*bench, error) {
	b := &bench{root: root, build: filepath.Join(root, *build), bin: *bin, tools: filepath.Join(root, "test/cluster/tools"), samples: samples{}}
	var err error
	// Short names: a socket's path has at most 107 bytes.
	if b.disk, err = os.MkdirTemp(*disk, "bp-"); err != nil {
		return nil, err
	}
	if b.memory, err = os.MkdirTemp(*memory, "bp-"); err != nil {
		return nil, err
	}
	server := filepath.Join(b.disk, "api")
	command := exec.Command(filepath.Join(b.tools, "apiserver"), "up", server, "--with", strconv.Itoa(os.Getpid()))
	command.Stderr = os.Stderr
	printed, err := command.Output()
	if err != nil {
		b.close()
		return nil, fmt.Errorf("the API server did not start: %w", err)
	}
	b.kubeconfig = strings.TrimSpace(string(printed))
	for _, name := range []string{"etcd", "kube-apiserver"} {
		text, err := os.ReadFile(filepath.Join(server, name+".pid"))
		if err != nil {
			b.close()
			return nil, err
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		b.servers = append(b.servers, pid)
	}
	return b, nil
}

func (b *bench) close() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.closed {
		return
	}
	b.closed = true
	if b.kept != 0 {
		_ = syscall.Kill(b.kept, syscall.SIGKILL)
	}
	_ = exec.Command(filepath.Join(b.tools, "apiserver"), "down", filepath.Join(b.disk, "api")).Run()
	_ = errors.Join(os.RemoveAll(b.disk), os.RemoveAll(b.memory))
}

// A record is what kubeletload printed of one run.
type record map[string]any

func (r record) number(key string) float64 {
	value, isNumber := r[key].(float64)
	if !isNumber {
		check(fmt.Errorf("kubeletload printed no number %q: %v", key, r))
	}
	return value
}

// kubeletload does one step. Where it may be repeated, one that other programs disturbed is.
func (b *bench) kubeletload(repeatable bool, arguments ...string) record {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		waitForQuiet(*patient)
		before := b.clocks()
		result, self := b.runKubeletload(arguments)
		if pid, isKept := result["kept_pid"].(string); isKept {
			b.keep(pid)
		}
		foreign := b.clocks().foreignShare(before, self)
		if foreign > mostForeign && repeatable && attempt < attempts {
			if result["kept_pid"] != nil {
				b.stop()
			}
			continue
		}
		b.steps++
		if foreign > mostForeign {
			b.disturbed++
		}
		return result
	}
}

func (b *bench) runKubeletload(arguments []string) (record, time.Duration) {
	command := exec.Command(filepath.Join(b.bin, "kubeletload"), arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+b.kubeconfig)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		check(fmt.Errorf("kubeletload %s: %w: %s", strings.Join(arguments, " "), err, stderr.String()))
	}
	var result record
	if stdout.Len() > 0 {
		check(json.Unmarshal(stdout.Bytes(), &result))
	}
	return result, command.ProcessState.UserTime() + command.ProcessState.SystemTime()
}

func (b *bench) keep(text string) {
	pid, err := strconv.Atoi(text)
	check(err)
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.kept = pid
}

// stop ends the driver that runs, as a rolling update does.
func (b *bench) stop() {
	b.mutex.Lock()
	pid := b.kept
	b.mutex.Unlock()
	if pid == 0 {
		return
	}
	check(syscall.Kill(pid, syscall.SIGTERM))
	timeout := time.AfterFunc(30*time.Second, func() {
		log.Printf("the driver (process %d) did not end in 30 s", pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	})
	defer timeout.Stop()
	for {
		_, err := syscall.Wait4(pid, nil, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		check(err)
		break
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.kept = 0
}

func (b *bench) add(driver, name string, value float64) {
	if b.samples[driver] == nil {
		b.samples[driver] = map[string][]float64{}
	}
	b.samples[driver][name] = append(b.samples[driver][name], value)
}
