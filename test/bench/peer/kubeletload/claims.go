package main

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const indexLabel = "kubeletload-index" // of a claim in its set: says which devices it gets

func runClaims(ctx context.Context, r record, _ bool) {
	api := client.ResourceV1().ResourceClaims(*namespace)
	if *del {
		check(api.DeleteCollection(ctx, metav1.DeleteOptions{}, ofSet(*set)))
		return
	}
	theNode := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: *node}}
	if _, err := client.CoreV1().Nodes().Create(ctx, theNode, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		check(err)
	}
	wall := parallel(*n, 8, func(i int) {
		labels := map[string]string{claimLabel: *set, indexLabel: strconv.Itoa(i)}
		claim := &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", *set, i), Labels: labels},
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
				Name: requestName,
				Exactly: &resourceapi.ExactDeviceRequest{
					DeviceClassName: *driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(*perClaim),
				},
			}}}},
		}
		allocate(ctx, must(api.Create(ctx, claim, metav1.CreateOptions{})))
	})
	r["claims"] = *n
	r.millis("wall_ms", wall)
}

// allocate does what the scheduler does: devices by the claim's index, reserved for one pod. The driver has the name of the class.
func allocate(ctx context.Context, claim *resourceapi.ResourceClaim) {
	index := must(strconv.Atoi(claim.Labels[indexLabel]))
	request := claim.Spec.Devices.Requests[0].Exactly
	count := int(request.Count)
	claim.Status.Allocation = &resourceapi.AllocationResult{}
	for d := range count {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: requestName, Driver: request.DeviceClassName, Pool: *node, Device: fmt.Sprintf(*devFormat, (index*count+d)%*devices),
		})
	}
	pod := fmt.Sprintf("10000000-0000-4000-8000-%012d", index)
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod-of-" + claim.Name, UID: types.UID(pod)}}
	must(client.ResourceV1().ResourceClaims(*namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{}))
}

// eachClaim reads the first *n claims of the set again and calls f for each.
func eachClaim(ctx context.Context, set string, f func(claim *resourceapi.ResourceClaim)) {
	list := must(client.ResourceV1().ResourceClaims(*namespace).List(ctx, ofSet(set)))
	parallel(min(*n, len(list.Items)), 8, func(i int) { f(&list.Items[i]) })
}

func allocateSet(ctx context.Context, set string) {
	eachClaim(ctx, set, func(claim *resourceapi.ResourceClaim) {
		if claim.Status.Allocation == nil {
			allocate(ctx, claim)
		}
	})
}

// deallocateSet does what the claim controller does once the pod is gone. A driver that writes the status at the same time wins; it is asked again.
func deallocateSet(ctx context.Context, set string) {
	api := client.ResourceV1().ResourceClaims(*namespace)
	eachClaim(ctx, set, func(claim *resourceapi.ResourceClaim) {
		for {
			claim.Status = resourceapi.ResourceClaimStatus{}
			_, err := api.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
			if !apierrors.IsConflict(err) {
				check(err)
				return
			}
			claim = must(api.Get(ctx, claim.Name, metav1.GetOptions{}))
		}
	})
}
