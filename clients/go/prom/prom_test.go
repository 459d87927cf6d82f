package prom_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"larder.example/clients/go"
	"larder.example/clients/go/internal/live"
	"larder.example/clients/go/prom"
)

func TestMetricsAreThoseOfTheCalls(t *testing.T) {
	live.Leaks(t)
	socket, server := live.Serve(t)
	metrics := prom.New(prom.Options{})
	ctx := context.Background()
	cache, err := larder.Open(ctx, larder.Config{
		Servers: []larder.Server{{Address: socket, Name: "one"}}, Observer: metrics, Timeout: 10 * time.Minute, DialTimeout: 10 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	metrics.Watch(cache)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics)
	for range 3 {
		if err := cache.Set(ctx, "k", []byte("v"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cache.Get(ctx, "none", nil); err != larder.ErrMiss {
		t.Fatal(err)
	}
	expect := func(names []string, text string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text), names...); err != nil {
			t.Error(err)
		}
	}
	expect([]string{"larder_client_requests_total", "larder_client_dials_total", "larder_client_server_down", "larder_client_connection_events_total"}, `
# HELP larder_client_connection_events_total Events of connections, by server.
# TYPE larder_client_connection_events_total counter
larder_client_connection_events_total{event="connected",server="one"} 1
# HELP larder_client_dials_total Connections that were dialed.
# TYPE larder_client_dials_total counter
larder_client_dials_total{server="one"} 1
# HELP larder_client_requests_total Requests that were sent.
# TYPE larder_client_requests_total counter
larder_client_requests_total{server="one"} 4
# HELP larder_client_server_down 1 while calls fail at once because the server is down.
# TYPE larder_client_server_down gauge
larder_client_server_down{server="one"} 0
`)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]uint64{}
	for _, family := range families {
		if family.GetName() != "larder_client_operation_duration_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			seen[labels["verb"]+" "+labels["server"]+" "+labels["result"]] = metric.GetHistogram().GetSampleCount()
		}
	}
	if len(seen) != 2 || seen["set one ok"] != 3 || seen["get one miss"] != 1 {
		t.Errorf("%v", seen)
	}
	_ = server.Process.Kill()
	_ = server.Wait()
	// However slow the machine is: ten minutes are a hang.
	for begun := time.Now(); time.Since(begun) < 10*time.Minute; time.Sleep(10 * time.Millisecond) {
		if err := cache.Set(ctx, "k", nil, 0); errors.Is(err, larder.ErrServerDown) && cache.Counters()["one"].Down {
			break
		}
	}
	expect([]string{"larder_client_server_down"}, `
# HELP larder_client_server_down 1 while calls fail at once because the server is down.
# TYPE larder_client_server_down gauge
larder_client_server_down{server="one"} 1
`)
}
