//! Credentials that `object_store` does not read: files of Google's federated and impersonated accounts, and
//! profiles of AWS. `docs/network.md` has a table of all sources of credentials, in order of precedence.
//!
//! `google::configure` and `aws::configure` check, without a request, whether there are such credentials. If
//! there are, they give the builder of the bucket a provider for these credentials. The provider, `Renewed`,
//! requests a credential when it is first needed and again before it expires. Its requests go through the
//! client of a `Connector`: they are retried and redirected as all other requests are, and their errors never
//! show secrets that were sent.

#[cfg(feature = "s3")]
pub(super) mod aws;
mod document;
#[cfg(feature = "gcs")]
mod external_account;
#[cfg(feature = "gcs")]
pub(super) mod google;
mod process;
#[cfg(feature = "s3")]
mod profiles;
mod renewed;
#[cfg(feature = "s3")]
mod sts;
#[cfg(feature = "gcs")]
mod token_request;
mod values;
