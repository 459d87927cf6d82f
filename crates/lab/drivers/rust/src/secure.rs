//! TLS of Larder's own client, from the files that a job names.

use std::fmt::Display;
use std::sync::Arc;

use larder_client::Tls;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::Job;

/// A configuration for the job's server.
///
/// # Errors
/// Which file cannot be used, and why.
pub fn tls(job: &Job) -> Result<Tls, String> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(authorities(&job.tls_authorities)?);
    let config = if job.tls_chain.is_empty() {
        config.with_no_client_auth()
    } else {
        let key = PrivateKeyDer::from_pem_file(&job.tls_key)
            .map_err(|error| format!("{}: {error}", job.tls_key))?;
        config
            .with_client_auth_cert(certificates(&job.tls_chain)?, key)
            .map_err(|error| format!("{}: {error}", job.tls_key))?
    };
    Ok(Tls::from(Arc::new(config)).name(&job.tls_name))
}

/// Those of a file, or of the system where none is named.
fn authorities(path: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if path.is_empty() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    }
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(roots)
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let unusable = |why: &dyn Display| format!("{path}: {why}");
    let all = CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(|error| unusable(&error))?;
    if all.is_empty() { Err(unusable(&"there is no certificate in it")) } else { Ok(all) }
}
