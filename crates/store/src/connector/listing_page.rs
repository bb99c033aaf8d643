//! Pages of listings, in a form that `object_store` can read.

use crate::key;
use crate::response::element;
use crate::{ErrorKind, Result};
use bytes::Bytes;
use object_store::client::HttpRequest;

/// A request for a page of a listing.
pub(super) struct PageRequest {
    /// The element that holds a key in the response.
    key_tag: &'static str,
    /// The token with which the request continues a listing.
    token: Option<String>,
}

impl PageRequest {
    /// Reads `request` as a request for a page of a listing; `None` if it is a request of another kind.
    pub(super) fn of(request: &HttpRequest) -> Option<Self> {
        let query = request.uri().query()?;
        let key_tag = query.split('&').find_map(|parameter| match parameter {
            "list-type=2" => Some("Key"),
            "comp=list" => Some("Name"),
            _ => None,
        })?;
        Some(PageRequest { key_tag, token: token(query) })
    }

    /// The page that was received, changed so that `object_store` can read all keys in it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Store`] if the page names itself as the next page.
    pub(super) fn readable(&self, page: Bytes) -> Result<Bytes> {
        let Ok(text) = std::str::from_utf8(&page) else { return Ok(page) };
        if self.token.is_some() && self.token == next_token(text) {
            let why = "the server repeats itself: a page of the listing says that the same page comes next";
            return Err(ErrorKind::Store(why.into()).into());
        }
        Ok(key::mark_page(text, self.key_tag).map_or(page, Bytes::from))
    }
}

/// The token in the query of a request.
fn token(query: &str) -> Option<String> {
    let mut parameters = query.split('&').filter_map(|parameter| parameter.split_once('='));
    let (_, token) = parameters.find(|(name, _)| matches!(*name, "continuation-token" | "marker"))?;
    let token = percent_encoding::percent_decode_str(token).decode_utf8().ok()?;
    (!token.is_empty()).then(|| token.into_owned())
}

/// The token in `page` that requests the next page.
fn next_token(page: &str) -> Option<String> {
    let token = ["NextContinuationToken", "NextMarker"].into_iter().find_map(|name| element(page, name))?;
    Some(token.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
}
