//! larder-server
