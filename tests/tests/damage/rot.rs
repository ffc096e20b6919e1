//! Bytes on disk that have changed.
