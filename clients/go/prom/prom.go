// Package prom turns events of a package larder client into Prometheus metrics.
//
//	metrics := prom.New(prom.Options{})
//	cache, err := larder.Open(ctx, larder.Config{Servers: servers, Observer: metrics})
//	metrics.Watch(cache)
//	prometheus.MustRegister(metrics)
//
// Keys are never a label.
package prom

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"larder.example/clients/go"
)

// Options of Metrics.
type Options struct {
	// Namespace is the prefix of each name. Default: "larder_client".
	Namespace string
	// Labels are added to every metric.
	Labels prometheus.Labels
	// Buckets of durations, in seconds. Default: from 50 µs to 1 s.
	Buckets []float64
}

// Metrics is a larder.Observer and a prometheus.Collector.
type Metrics struct {
	durations   *prometheus.HistogramVec
	connections *prometheus.CounterVec
	counters    []counter
	down        *prometheus.Desc

	mu      sync.Mutex
	clients []*larder.Client
}

// counter is one of a client's own counters.
type counter struct {
	desc *prometheus.Desc
	of   func(*larder.Counters) uint64
}

// New makes Metrics.
func New(o Options) *Metrics {
	if o.Namespace == "" {
		o.Namespace = "larder_client"
	}
	if o.Buckets == nil {
		o.Buckets = []float64{50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2, 0.5, 1}
	}
	m := &Metrics{
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: o.Namespace, Name: "operation_duration_seconds", ConstLabels: o.Labels, Buckets: o.Buckets,
			Help: "How long calls took, by verb, server and result: ok, or the error's name.",
		}, []string{"verb", "server", "result"}),
		connections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: o.Namespace, Name: "connection_events_total", ConstLabels: o.Labels,
			Help: "Events of connections, by server.",
		}, []string{"server", "event"}),
		down: prometheus.NewDesc(o.Namespace+"_server_down", "1 while calls fail at once because the server is down.", []string{"server"}, o.Labels),
	}
	for _, c := range []struct {
		name, help string
		of         func(*larder.Counters) uint64
	}{
		{"requests_total", "Requests that were sent.", func(c *larder.Counters) uint64 { return c.Ops }},
		{"replies_total", "Replies that came.", func(c *larder.Counters) uint64 { return c.Replies }},
		{"writes_total", "Writes to connections.", func(c *larder.Counters) uint64 { return c.Writes }},
		{"reads_total", "Reads from connections.", func(c *larder.Counters) uint64 { return c.Reads }},
		{"abandoned_total", "Requests whose caller did not wait for the reply.", func(c *larder.Counters) uint64 { return c.Abandoned }},
		{"sent_bytes_total", "Bytes that were sent.", func(c *larder.Counters) uint64 { return c.BytesOut }},
		{"received_bytes_total", "Bytes that came.", func(c *larder.Counters) uint64 { return c.BytesIn }},
		{"dials_total", "Connections that were dialed.", func(c *larder.Counters) uint64 { return c.Dials }},
		{"dials_failed_total", "Dials that failed.", func(c *larder.Counters) uint64 { return c.DialsFailed }},
	} {
		m.counters = append(m.counters, counter{prometheus.NewDesc(o.Namespace+"_"+c.name, c.help, []string{"server"}, o.Labels), c.of})
	}
	return m
}

// Watch adds the counters of a client. Clients of the same servers add up.
func (m *Metrics) Watch(c *larder.Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clients = append(m.clients, c)
}

// Op implements larder.Observer.
func (m *Metrics) Op(e larder.OpEvent) {
	result := "ok"
	if e.Err != nil {
		result = larder.ErrorName(e.Err)
	}
	m.durations.WithLabelValues(e.Verb, e.Server, result).Observe(e.Took.Seconds())
}

// Conn implements larder.Observer.
func (m *Metrics) Conn(e larder.ConnEvent) {
	m.connections.WithLabelValues(e.Server, e.Kind.String()).Inc()
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.durations.Describe(to)
	m.connections.Describe(to)
	for _, c := range m.counters {
		to <- c.desc
	}
	to <- m.down
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.durations.Collect(to)
	m.connections.Collect(to)
	m.mu.Lock()
	clients := m.clients
	m.mu.Unlock()
	sums := map[string][]uint64{}
	down := map[string]float64{}
	for _, client := range clients {
		for server, counters := range client.Counters() {
			if sums[server] == nil {
				sums[server] = make([]uint64, len(m.counters))
			}
			for i, c := range m.counters {
				sums[server][i] += c.of(&counters)
			}
			if counters.Down {
				down[server] = 1
			} else {
				down[server] += 0
			}
		}
	}
	for server, values := range sums {
		for i, c := range m.counters {
			to <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(values[i]), server)
		}
		to <- prometheus.MustNewConstMetric(m.down, prometheus.GaugeValue, down[server], server)
	}
}
