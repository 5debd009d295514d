"""What people say of groups and completions: bookmarks, thumbs, choices, and whether the reward agrees."""
