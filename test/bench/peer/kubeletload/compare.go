package main

import (
	"context"
	"time"

	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// A side is one of two services that are compared claim by claim.
type side struct {
	plugin             drapb.DRAPluginClient
	claims             []*drapb.Claim
	prepare, unprepare []time.Duration
}

func connect(ctx context.Context, socket, set string) *side {
	s := &side{plugin: drapb.NewDRAPluginClient(dial(socket)), claims: listClaims(ctx, set)}
	must(s.plugin.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{})) // connect before timing
	return s
}

func (s *side) call(ctx context.Context, i int, f func(context.Context, drapb.DRAPluginClient, []*drapb.Claim), times *[]time.Duration) {
	start := time.Now()
	f(ctx, s.plugin, s.claims[i:i+1])
	*times = append(*times, time.Since(start))
}

// runCompare prepares and unprepares one claim of the one side, then one of the other, so that whatever disturbs the machine disturbs both.
// Who is first changes with each pair. The figures of the other side begin with "with_".
func runCompare(ctx context.Context, r record, _ bool) {
	if *reallocate {
		allocateSet(ctx, *set)
		allocateSet(ctx, *withSet)
	}
	ours, other := connect(ctx, *socket, *set), connect(ctx, *withSocket, *withSet)
	start := time.Now()
	for i := range *n {
		pair := []*side{ours, other}
		if i%2 == 1 {
			pair[0], pair[1] = pair[1], pair[0]
		}
		for _, s := range pair {
			s.call(ctx, i, prepare, &s.prepare)
		}
		for _, s := range pair {
			s.call(ctx, i, unprepare, &s.unprepare)
		}
	}
	wall := time.Since(start)
	if *reallocate {
		deallocateSet(ctx, *set)
		deallocateSet(ctx, *withSet)
	}
	r["claims"] = *n
	for prefix, s := range map[string]*side{"": ours, "with_": other} {
		r.latencies(prefix+"prepare", s.prepare, wall)
		r.latencies(prefix+"unprepare", s.unprepare, wall)
	}
}
