//! larder-commands
