package otel_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"larder.example/clients/go"
	"larder.example/clients/go/internal/live"
	"larder.example/clients/go/otel"
)

func TestMetricsAndSpansAreThoseOfTheCalls(t *testing.T) {
	live.Leaks(t)
	socket, _ := live.Serve(t)
	reader := sdk.NewManualReader()
	spans := tracetest.NewSpanRecorder()
	tracers := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	observer, err := otel.New(otel.Options{Meters: sdk.NewMeterProvider(sdk.WithReader(reader)), Tracers: tracers})
	if err != nil {
		t.Fatal(err)
	}
	ctx, parent := tracers.Tracer("test").Start(context.Background(), "parent")
	cache, err := larder.Open(ctx, larder.Config{
		Servers: []larder.Server{{Address: socket, Name: "one"}}, Observer: observer, Timeout: 10 * time.Minute, DialTimeout: 10 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	if err := cache.Set(ctx, "k", []byte("v"), 0); err != nil {
		t.Fatal(err)
	}
	_, _ = cache.Get(ctx, "k", nil)
	_, _ = cache.Get(ctx, "none", nil)
	_ = cache.Set(ctx, "not a key", nil, 0)
	var data metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &data); err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, metric := range data.ScopeMetrics[0].Metrics {
		histogram, is := metric.Data.(metricdata.Histogram[float64])
		if !is {
			t.Errorf("%s is %T", metric.Name, metric.Data)
			continue
		}
		for _, point := range histogram.DataPoints {
			name := metric.Name
			for _, key := range []attribute.Key{"db.system.name", "db.operation.name", "server.address", "larder.hit", "error.type"} {
				if value, is := point.Attributes.Value(key); is {
					name += " " + value.Emit()
				}
			}
			counts[name] = point.Count
		}
	}
	for _, name := range []string{
		"db.client.connection.create_time memcached one",
		"db.client.operation.duration memcached set one",
		"db.client.operation.duration memcached get one true",
		"db.client.operation.duration memcached get one false",
		"db.client.operation.duration memcached set bad-key",
	} {
		if counts[name] != 1 {
			t.Errorf("%s: %d", name, counts[name])
		}
	}
	if len(counts) != 5 {
		t.Errorf("%v", counts)
	}
	ended := spans.Ended()
	if len(ended) != 4 {
		t.Fatalf("%d spans", len(ended))
	}
	for _, span := range ended {
		if span.Parent().SpanID() != parent.SpanContext().SpanID() || span.EndTime().Before(span.StartTime()) {
			t.Errorf("%+v", span)
		}
	}
	if ended[3].Status().Description != "bad-key" || ended[2].Status().Description != "" {
		t.Errorf("%v, %v", ended[3].Status(), ended[2].Status())
	}
}
