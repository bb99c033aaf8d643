//! Credentials that `object_store` does not read: files of Google's federated and impersonated accounts, and
//! profiles of AWS. `docs/network.md` has the table of all that is read, in which order.
//!
//! `google::configure` and `aws::configure` look whether there are such credentials, without a request,
//! and give the builder of the bucket a provider of them. The provider, `Renewed`, requests a credential
//! when it is first needed and again before it expires. Requests go through the client of a
//! `Connector`: they are retried and redirected as all others are, and their
//! errors show nothing that was sent.

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
