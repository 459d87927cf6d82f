//! larder-testkit
