"""Draft heads: published formats become networks that the drafters call."""
