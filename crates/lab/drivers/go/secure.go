package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// secured is what a job says of TLS: the name in the server's certificate, and PEM files. No file of authorities: the system's.
type secured struct {
	Name        string `json:"tls_name"`
	Authorities string `json:"tls_authorities"`
	Chain       string `json:"tls_chain"`
	Key         string `json:"tls_key"`
}

// config reads the files.
func (s *secured) config() (*tls.Config, error) {
	config := &tls.Config{ServerName: s.Name}
	if s.Authorities != "" {
		text, err := os.ReadFile(s.Authorities)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: there is no certificate in it", s.Authorities)
		}
	}
	if s.Chain != "" {
		pair, err := tls.LoadX509KeyPair(s.Chain, s.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// dialer opens connections to the job's server, which are by TLS if the server speaks it: for clients that take a dialer. A
// handshake has as long as a call.
func (j *job) dialer() (dialer, error) {
	if !j.TLS {
		return dial, nil
	}
	config, err := j.config()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, j.timeout())
		defer cancel()
		over := tls.Client(conn, config)
		if err := over.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return over, nil
	}, nil
}
