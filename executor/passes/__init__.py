"""The compiler's passes, one file each: a `Program` goes in, a `Program` that means the same comes out."""
