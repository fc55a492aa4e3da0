"""What the book and its experiments stand on. The library never imports it."""
