// Peerbench measures our driver host against the Go reference driver (gopeer),
// in one alternating run on one real API server, and holds the medians against
// their bounds.
//
// Everything that a driver keeps lies in the same kinds of places for all: the
// kubelet's directories and durable state on a disk, CDI specs and what lives
// as long as the machine on tmpfs. Kubeletload plays the kubelet.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var (
	repo    = flag.String("repo", ".", "root of the checkout")
	build   = flag.String("build", "build/release", "build tree with bin/tranched, bin/tranche-runner and backends/null_backend, from the root")
	bin     = flag.String("bin", "", "folder with gopeer and kubeletload")
	out     = flag.String("out", "build/bench/peer.json", "where the figures go, from the root")
	rounds  = flag.Int("rounds", 5, "rounds; every figure is the median over them")
	disk    = flag.String("disk", "/var/tmp", "folder on a disk, for durable state")
	memory  = flag.String("memory", "/dev/shm", "folder on tmpfs, for CDI specs")
	patient = flag.Duration("patience", 20*time.Second, "how long to wait before a step until other programs leave the CPUs alone")
	only    = flag.String("only", "", "one part alone: start, load, restart or isolation")
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench-peer: ")
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() (err error) {
	root, err := filepath.Abs(*repo)
	if err != nil {
		return err
	}
	if err := checkFileSystems(); err != nil {
		return err
	}
	// Drivers that kubeletload leaves running become our children, so that their end can be awaited.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	bench, err := newBench(root)
	if err != nil {
		return err
	}
	defer bench.close()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-interrupted
		bench.close()
		os.Exit(130)
	}()
	defer func() { // steps panic with a failure: one error ends the run, and close still runs
		if failure, isFailure := recover().(failure); isFailure {
			err = failure.error
		}
	}()

	began := time.Now()
	bench.createClaims()
	for round := range *rounds {
		drivers := bench.drivers()
		if round%2 == 1 { // whoever is first has the cooler caches: in turn
			slices.Reverse(drivers)
		}
		for _, driver := range drivers {
			log.Printf("round %d of %d: %s (%s since the start)", round+1, *rounds, driver.name, time.Since(began).Round(time.Second))
			bench.measure(driver)
		}
	}
	lines := bench.report()
	if err := writeReport(filepath.Join(root, *out), lines, bench.samples); err != nil {
		return err
	}
	fmt.Print(table(lines))
	fmt.Printf("%d rounds in %s; %d of %d steps were disturbed by other programs. Written to %s\n", *rounds,
		time.Since(began).Round(time.Second), bench.disturbed, bench.steps, *out)
	return nil
}

// Durable state on tmpfs would flatter everybody, and CDI specs on a disk whoever does not sync them.
func checkFileSystems() error {
	for _, place := range []struct {
		path    string
		isTmpfs bool
		option  string
	}{{*disk, false, "-disk"}, {*memory, true, "-memory"}} {
		var fs unix.Statfs_t
		if err := unix.Statfs(place.path, &fs); err != nil {
			return fmt.Errorf("%s %s: %w", place.option, place.path, err)
		}
		if (fs.Type == unix.TMPFS_MAGIC) != place.isTmpfs {
			return fmt.Errorf("%s %s: on tmpfs must be %v, is %v; name another folder", place.option, place.path, place.isTmpfs, !place.isTmpfs)
		}
	}
	return nil
}
