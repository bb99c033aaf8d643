//! Where bytes come from and go to: local files, memory, object stores, HTTP; decompression.
