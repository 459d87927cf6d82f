// Package otel turns events of a package larder client into OpenTelemetry metrics, and spans if wanted, by the semantic
// conventions of database clients.
//
//	observer, err := otel.New(otel.Options{})
//	cache, err := larder.Open(ctx, larder.Config{Servers: servers, Observer: observer})
//
// Keys are never an attribute.
package otel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"larder.example/clients/go"
)

const scope = "larder.example/clients/go/otel"

// Options of an Observer.
type Options struct {
	// Meters is the provider of metrics. Default: the global one.
	Meters metric.MeterProvider
	// Tracers, if set, gets a span for each call, below that of the call's context.
	Tracers trace.TracerProvider
	// Attributes are added to everything.
	Attributes []attribute.KeyValue
}

// Observer is a larder.Observer.
type Observer struct {
	durations metric.Float64Histogram
	dials     metric.Float64Histogram
	down      metric.Int64UpDownCounter
	tracer    trace.Tracer
	common    []attribute.KeyValue
}

// New makes an Observer.
//
// # Errors
//
// Those of the provider.
func New(o Options) (*Observer, error) {
	if o.Meters == nil {
		o.Meters = otel.GetMeterProvider()
	}
	meter := o.Meters.Meter(scope)
	observer := &Observer{common: append([]attribute.KeyValue{attribute.String("db.system.name", "memcached")}, o.Attributes...)}
	if o.Tracers != nil {
		observer.tracer = o.Tracers.Tracer(scope)
	}
	seconds := metric.WithUnit("s")
	buckets := metric.WithExplicitBucketBoundaries(50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2, 0.5, 1)
	var err error
	if observer.durations, err = meter.Float64Histogram("db.client.operation.duration", seconds, buckets,
		metric.WithDescription("Duration of calls.")); err != nil {
		return nil, err
	}
	if observer.dials, err = meter.Float64Histogram("db.client.connection.create_time", seconds, buckets,
		metric.WithDescription("The time it took to make a connection, or to find that it cannot be made.")); err != nil {
		return nil, err
	}
	if observer.down, err = meter.Int64UpDownCounter("larder.client.server.down",
		metric.WithDescription("1 while calls fail at once because the server is down.")); err != nil {
		return nil, err
	}
	return observer, nil
}

func (o *Observer) attributes(server string, err error, more ...attribute.KeyValue) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, len(o.common)+len(more)+2)
	all = append(append(all, o.common...), more...)
	if server != "" {
		all = append(all, attribute.String("server.address", server))
	}
	// An answer is no failure: that there is no value is a valid answer.
	if err != nil && larder.Fault(err) != larder.FaultAnswer {
		all = append(all, attribute.String("error.type", larder.ErrorName(err)))
	}
	return all
}

// Op implements larder.Observer.
func (o *Observer) Op(e larder.OpEvent) {
	attributes := o.attributes(e.Server, e.Err, attribute.String("db.operation.name", e.Verb))
	if e.Verb == "get" && e.Keys == 1 {
		switch larder.ErrorName(e.Err) {
		case "":
			attributes = append(attributes, attribute.Bool("larder.hit", true))
		case "miss":
			attributes = append(attributes, attribute.Bool("larder.hit", false))
		}
	}
	ctx := e.Context
	if ctx == nil {
		ctx = context.Background()
	}
	o.durations.Record(ctx, e.Took.Seconds(), metric.WithAttributes(attributes...))
	if o.tracer == nil {
		return
	}
	if e.Keys > 1 {
		attributes = append(attributes, attribute.Int("db.operation.batch.size", e.Keys))
	}
	_, span := o.tracer.Start(ctx, e.Verb, trace.WithTimestamp(e.Began), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
	if e.Err != nil && larder.Fault(e.Err) != larder.FaultAnswer {
		span.SetStatus(codes.Error, larder.ErrorName(e.Err))
	}
	span.End(trace.WithTimestamp(e.Began.Add(e.Took)))
}

// Conn implements larder.Observer.
func (o *Observer) Conn(e larder.ConnEvent) {
	ctx, end := context.WithTimeout(context.Background(), time.Second)
	defer end()
	with := metric.WithAttributes(o.attributes(e.Server, e.Err)...)
	switch e.Kind {
	case larder.Connected, larder.ConnectFailed:
		o.dials.Record(ctx, e.Took.Seconds(), with)
	case larder.ServerDown:
		o.down.Add(ctx, 1, metric.WithAttributes(o.attributes(e.Server, nil)...))
	case larder.ServerBack:
		o.down.Add(ctx, -1, metric.WithAttributes(o.attributes(e.Server, nil)...))
	case larder.DiscoveryFailed:
	}
}
