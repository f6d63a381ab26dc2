package tests

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tranche.dev/test/cluster/harness"
)

func TestAPIServerAlone(t *testing.T) {
	for _, minor := range []string{"1.37", "1.36"} {
		t.Run(minor, func(t *testing.T) {
			server := harness.NewAPIServer(t, minor)
			version, err := server.Client.Discovery().ServerVersion()
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(version.GitVersion, "v"+minor+".") {
				t.Errorf("version is %s", version.GitVersion)
			}
			slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourceapi.ResourceSliceSpec{Driver: "d.example.com",
				AllNodes: new(bool), Pool: resourceapi.ResourcePool{Name: "p", Generation: 1, ResourceSliceCount: 1},
				Devices: []resourceapi.Device{{Name: "dev", Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
					"bandwidth": {Value: resource.MustParse("10G")}}}}}}
			*slice.Spec.AllNodes = true
			if _, err := server.Client.ResourceV1().ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
				t.Errorf("a slice is refused: %v", err)
			}
		})
	}
}
