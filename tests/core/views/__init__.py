"""Tests of views: arrays whose shards are shards of other arrays."""
