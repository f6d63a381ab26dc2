//go:build tools

// Package tools keeps the commands of the API-server-only tests on this Kubernetes version in go.mod.
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
