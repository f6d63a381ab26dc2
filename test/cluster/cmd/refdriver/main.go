// Refdriver is a small DRA driver on the upstream Go helper library. The harness is proven with it, and tests compare with it what the scheduler and
// the kubelet do. Its devices exist only on paper: a container with one has REF_CLAIM and REF_DEVICE in its environment.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	cdi "tags.cncf.io/container-device-interface/specs-go"
)

var (
	kubeconfig = flag.String("kubeconfig", "", "path of the kubeconfig")
	node       = flag.String("node-name", "node1", "name of the node and of the pool")
	driverName = flag.String("driver-name", "ref.example.com", "name of the driver")
	devices    = flag.Int("num-devices", 2, "how many devices to publish")
	registry   = flag.String("registrar-directory", "/var/lib/kubelet/plugins_registry", "the kubelet's registration folder")
	plugins    = flag.String("plugins-directory", "/var/lib/kubelet/plugins", "the kubelet's plugin folder")
	cdiRoot    = flag.String("cdi-root", "/var/run/cdi", "folder of the CDI specs")
)

type driver struct{}

func specPath(uid types.UID) string {
	return filepath.Join(*cdiRoot, *driverName+"-"+string(uid)+".json")
}

func prepare(claim *resourceapi.ResourceClaim) (result kubeletplugin.PrepareResult) {
	spec := cdi.Spec{Version: "0.6.0", Kind: *driverName + "/device"}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver != *driverName {
			continue
		}
		id := string(claim.UID) + "-" + r.Device
		spec.Devices = append(spec.Devices, cdi.Device{Name: id, ContainerEdits: cdi.ContainerEdits{
			Env: []string{"REF_CLAIM=" + string(claim.UID), "REF_DEVICE=" + r.Device}}})
		result.Devices = append(result.Devices, kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device,
			ShareID: r.ShareID, CDIDeviceIDs: []string{spec.Kind + "=" + id}})
	}
	data, err := json.Marshal(spec)
	if err == nil {
		err = os.WriteFile(specPath(claim.UID), data, 0o644)
	}
	result.Err = err
	return result
}

func (driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	out := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		out[c.UID] = prepare(c)
	}
	return out, nil
}

func (driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range claims {
		if err := os.Remove(specPath(c.UID)); err != nil && !errors.Is(err, os.ErrNotExist) {
			out[c.UID] = err
		} else {
			out[c.UID] = nil
		}
	}
	return out, nil
}

func (driver) HandleError(ctx context.Context, err error, message string) {
	klog.FromContext(ctx).Error(err, message)
}

func (driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

func resources() resourceslice.DriverResources {
	var slice resourceslice.Slice
	for i := range *devices {
		slice.Devices = append(slice.Devices, resourceapi.Device{Name: fmt.Sprintf("dev-%d", i)})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{*node: {Slices: []resourceslice.Slice{slice}}}}
}

func run(ctx context.Context) error {
	data := filepath.Join(*plugins, *driverName)
	if err := errors.Join(os.MkdirAll(data, 0o750), os.MkdirAll(*cdiRoot, 0o755)); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, driver{}, kubeletplugin.KubeClient(client), kubeletplugin.NodeName(*node),
		kubeletplugin.DriverName(*driverName), kubeletplugin.RegistrarDirectoryPath(*registry), kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		return err
	}
	defer helper.Stop()
	if err := helper.PublishResources(ctx, resources()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "refdriver:", err)
		os.Exit(1)
	}
}
