"""What a site offers: storage and GPUs, checked before they are used and explained when they fail; pure."""
