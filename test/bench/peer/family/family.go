// Package family finds the processes that a driver consists of: a host that isolates its backends has one more for each.
package family

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Of returns the process and its direct children, the process first. Pid 0 or less: itself alone.
func Of(pid int) []int {
	family := []int{pid}
	if pid <= 0 {
		return family
	}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		if fields := Stat(path); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			family = append(family, child)
		}
	}
	return family
}

// Stat returns what follows the command's name in a process's stat file: its state, its parent, and so on. Nil once it has ended.
func Stat(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}

// Ticks is the CPU time of the process and its children, ended threads included, in ticks of /proc.
func Ticks(pid int) float64 {
	var ticks float64
	for _, member := range Of(pid) {
		fields := Stat(fmt.Sprintf("/proc/%d/stat", member))
		for i := 11; i <= 12 && i < len(fields); i++ { // user, system
			value, _ := strconv.ParseFloat(fields[i], 64)
			ticks += value
		}
	}
	return ticks
}
