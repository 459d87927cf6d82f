//! larder-eventloop
